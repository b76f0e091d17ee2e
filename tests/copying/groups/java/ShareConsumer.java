import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic as a member of a share group (KIP-932) until it is killed, and prints each value.
 *
 * Arguments: bootstrap servers, group, topic.
 */
public final class ShareConsumer {
    private ShareConsumer() {
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> options = Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[1],
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class);
        try (var consumer = new KafkaShareConsumer<byte[], byte[]>(options)) {
            consumer.subscribe(List.of(arguments[2]));
            while (true) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.write((new String(record.value(), StandardCharsets.UTF_8) + "\n").getBytes(StandardCharsets.UTF_8));
                    System.out.flush();
                }
                consumer.commitSync();
            }
        }
    }
}
