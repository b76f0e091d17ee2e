import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** HDFS in one process: prints its address, and ends with its stdin. Its argument is a folder for its data. */
class Hdfs {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, arguments[0]);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration).numDataNodes(1).build();
        System.out.println(cluster.getURI());
        System.out.flush();
        while (System.in.read() >= 0) {
            // the test still needs it
        }
        cluster.shutdown(true);
        System.exit(0);
    }
}
