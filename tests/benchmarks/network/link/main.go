// Command link joins two TUN devices, as a wide-area link joins two routers.
//
// Each direction has a bottleneck of a rate with a queue before it (drop-tail), then a delay, and loses packets at
// random. The kernel's TCP is on both sides, so that losses and delays act on its congestion control as netem's would.
// Lines on standard input: "cut" discards every packet from now on, "heal" ends that. At the end of the input it
// writes what has passed, as JSON, and ends.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	mostBytes   = 65536
	mostPackets = 1 << 17
	iffTun      = 0x0001
	iffNoInfo   = 0x1000
	tunSetIff   = 0x400454ca
)

type packet struct {
	due  time.Time
	data []byte
}

// Counts of one direction; read while it runs.
type counts struct {
	Packets, Bytes, Lost, Overflowed, Cut atomic.Int64
}

type direction struct {
	from, to int
	delay    time.Duration
	perByte  float64 // ns; 0: no bottleneck
	queue    time.Duration
	loss     float64
	random   *rand.Rand
	cut      *atomic.Bool
	counts   counts
	line     chan packet
}

func open(name string) (int, error) {
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	var request [40]byte
	copy(request[:15], name)
	*(*uint16)(unsafe.Pointer(&request[16])) = iffTun | iffNoInfo
	if _, _, no := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), tunSetIff, uintptr(unsafe.Pointer(&request))); no != 0 {
		return 0, no
	}
	return fd, nil
}

func (d *direction) receive() {
	buffer := make([]byte, mostBytes)
	free := time.Now()
	for {
		n, err := syscall.Read(d.from, buffer)
		if err != nil || n <= 0 {
			if err == syscall.EINTR || err == syscall.EAGAIN {
				continue
			}
			return
		}
		now := time.Now()
		if d.cut.Load() {
			d.counts.Cut.Add(1)
			continue
		}
		if free.Before(now) {
			free = now
		}
		if d.perByte > 0 {
			if free.Sub(now) > d.queue {
				d.counts.Overflowed.Add(1)
				continue
			}
			free = free.Add(time.Duration(float64(n) * d.perByte))
		}
		// Behind the bottleneck: what is lost has used the link.
		if d.loss > 0 && d.random.Float64() < d.loss {
			d.counts.Lost.Add(1)
			continue
		}
		data := make([]byte, n)
		copy(data, buffer)
		select {
		case d.line <- packet{free.Add(d.delay), data}:
		default:
			d.counts.Overflowed.Add(1)
		}
	}
}

func (d *direction) send() {
	for next := range d.line {
		if wait := time.Until(next.due); wait > 0 {
			time.Sleep(wait)
		}
		if d.cut.Load() {
			d.counts.Cut.Add(1)
			continue
		}
		if _, err := syscall.Write(d.to, next.data); err == nil {
			d.counts.Packets.Add(1)
			d.counts.Bytes.Add(int64(len(next.data)))
		}
	}
}

func (d *direction) shown() map[string]int64 {
	c := &d.counts
	return map[string]int64{
		"packets": c.Packets.Load(), "bytes": c.Bytes.Load(), "lost": c.Lost.Load(),
		"overflowed": c.Overflowed.Load(), "cut": c.Cut.Load(),
	}
}

func main() {
	delay := flag.Duration("delay", 0, "of each direction")
	rate := flag.Float64("mbit", 0, "Mbit/s of each direction; 0: no bottleneck")
	queue := flag.Duration("queue", 100*time.Millisecond, "how long a packet may wait before the bottleneck")
	loss := flag.Float64("loss", 0, "the part of the packets that is lost, in each direction")
	seed := flag.Int64("seed", 1, "of the losses")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "give the names of two devices")
		os.Exit(2)
	}
	var ends [2]int
	for i, name := range flag.Args() {
		fd, err := open(name)
		if err != nil {
			fmt.Fprintf(os.Stderr, "TUN device %s: %v\n", name, err)
			os.Exit(1)
		}
		ends[i] = fd
	}
	var cut atomic.Bool
	var both [2]*direction
	for i := range both {
		perByte := 0.0
		if *rate > 0 {
			perByte = 8e3 / *rate
		}
		both[i] = &direction{
			from: ends[i], to: ends[1-i], delay: *delay, perByte: perByte, queue: *queue, loss: *loss,
			random: rand.New(rand.NewSource(*seed + int64(i))), cut: &cut, line: make(chan packet, mostPackets),
		}
		go both[i].receive()
		go both[i].send()
	}
	fmt.Println("up")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		switch lines.Text() {
		case "cut":
			cut.Store(true)
		case "heal":
			cut.Store(false)
		case "counts":
		}
		_ = json.NewEncoder(os.Stdout).Encode([]map[string]int64{both[0].shown(), both[1].shown()})
	}
}
