import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic as a member of a group until it is killed. It prints each value, and then commits the position behind
 * every n-th record on average; if n is 0, it commits nothing.
 *
 * Arguments: bootstrap servers, group, topic, group protocol, auto.offset.reset, n.
 */
public final class GroupConsumer {
    private GroupConsumer() {
    }

    public static void main(String[] arguments) throws Exception {
        int every = Integer.parseInt(arguments[5]);
        var random = new Random();
        Map<String, Object> options = Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[1],
            "group.protocol", arguments[3],
            "auto.offset.reset", arguments[4],
            "enable.auto.commit", false,
            "max.poll.records", 7,
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class);
        try (var consumer = new KafkaConsumer<byte[], byte[]>(options)) {
            consumer.subscribe(List.of(arguments[2]));
            boolean committed = false;
            while (true) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.write((new String(record.value(), StandardCharsets.UTF_8) + "\n").getBytes(StandardCharsets.UTF_8));
                    System.out.flush();
                    if (every > 0 && (!committed || random.nextInt(every) == 0)) {
                        var partition = new TopicPartition(record.topic(), record.partition());
                        consumer.commitSync(Map.of(partition, new OffsetAndMetadata(record.offset() + 1)));
                        committed = true;
                    }
                }
            }
        }
    }
}
