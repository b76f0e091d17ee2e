import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.Stores;

/** Counts the values of a topic, exactly once, until its stdin ends. Arguments: servers, application, folder, from, to. */
class WordCounts {
    public static void main(String[] arguments) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[3])
            .groupBy((key, value) -> value, Grouped.as("by-value"))
            .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[4]);
        Properties properties = new Properties();
        properties.putAll(Map.of(
            "bootstrap.servers", arguments[0],
            "application.id", arguments[1],
            "state.dir", arguments[2],
            "processing.guarantee", "exactly_once_v2",
            "default.key.serde", Serdes.StringSerde.class.getName(),
            "default.value.serde", Serdes.StringSerde.class.getName(),
            "auto.offset.reset", "earliest",
            "replication.factor", 1,
            "commit.interval.ms", 200,
            "session.timeout.ms", 6000));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.start();
        while (System.in.read() >= 0) {
            // the test still needs it
        }
        streams.close();
        System.exit(0);
    }
}
