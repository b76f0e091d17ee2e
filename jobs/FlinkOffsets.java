import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.connector.kafka.source.split.KafkaPartitionSplit;
import org.apache.flink.connector.kafka.source.split.KafkaPartitionSplitSerializer;
import org.apache.flink.core.io.SimpleVersionedSerialization;
import org.apache.flink.state.api.OperatorIdentifier;
import org.apache.flink.state.api.SavepointReader;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.CloseableIterator;

/**
 * Prints where a Kafka source of Flink continues, from a savepoint or checkpoint of its job, as "mirror positions
 * translate" reads it. Arguments: the path of the savepoint, and the uid of the source.
 */
class FlinkOffsets {
    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 2) {
            System.err.println("usage: FlinkOffsets SAVEPOINT UID");
            System.exit(2);
        }
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(1);
        CloseableIterator<byte[]> splits = SavepointReader.read(flink, arguments[0])
            .readListState(
                OperatorIdentifier.forUid(arguments[1]),
                "SourceReaderState", // of SourceOperator, FLIP-27
                PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO)
            .executeAndCollect();
        while (splits.hasNext()) {
            KafkaPartitionSplit split = SimpleVersionedSerialization.readVersionAndDeSerialize(
                new KafkaPartitionSplitSerializer(), splits.next());
            long offset = split.getStartingOffset();
            if (offset == KafkaPartitionSplit.EARLIEST_OFFSET) {
                offset = 0; // it has read nothing of the partition yet
            } else if (offset < 0) {
                System.err.println(
                    split.getTopicPartition() + " has no offset: the job has read nothing, and starts where its"
                        + " setStartingOffsets says; add a line with the offset");
                System.exit(3);
            }
            System.out.println(split.getTopic() + "," + split.getPartition() + "," + offset);
        }
        System.exit(0);
    }
}
