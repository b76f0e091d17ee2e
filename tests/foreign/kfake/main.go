// A cluster of franz-go's kfake that runs until its standard input ends. It prints its addresses.
//
//	kfake          the versions of its newest release of Apache Kafka
//	kfake 3.9      those of 3.9, in which the end of a transaction does not change the producer epoch (KIP-890)
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"
)

func main() {
	options := []kfake.Opt{kfake.NumBrokers(2), kfake.ClusterID("kfake")}
	if len(os.Args) > 1 {
		versions := kversion.FromString("v" + os.Args[1])
		if versions == nil {
			fmt.Fprintln(os.Stderr, "no release", os.Args[1])
			os.Exit(1)
		}
		options = append(options, kfake.MaxVersions(versions))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer cluster.Close()
	fmt.Println(strings.Join(cluster.ListenAddrs(), ","))
	io.Copy(io.Discard, os.Stdin)
}
