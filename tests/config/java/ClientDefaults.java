import java.util.Map;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;

/** Prints the default of every key of Kafka's clients: client, key and default, with tabs between them. */
public final class ClientDefaults {
    private ClientDefaults() {
    }

    public static void main(String[] arguments) {
        print("producer", ProducerConfig.configDef().defaultValues());
        print("consumer", ConsumerConfig.configDef().defaultValues());
        print("admin", AdminClientConfig.configDef().defaultValues());
    }

    private static void print(String client, Map<String, Object> defaults) {
        defaults.forEach((key, value) -> System.out.println(client + "\t" + key + "\t" + value));
    }
}
