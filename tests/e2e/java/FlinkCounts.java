import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.SinkFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;
import org.apache.kafka.common.TopicPartition;

/**
 * Counts numbers by their last digit, in state, and appends each with its count to a file, until its stdin ends. Then
 * it stops with a savepoint. Arguments: servers, group, topic, folder, uid of the source, savepoint to begin with or "".
 */
class FlinkCounts {
    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[3]);
        Configuration configuration = Configuration.fromMap(Map.of(
            "execution.checkpointing.interval", "200 ms",
            "execution.checkpointing.dir", folder.resolve("checkpoints").toUri().toString(),
            "taskmanager.memory.network.min", "16mb",
            "taskmanager.memory.network.max", "16mb"));
        if (!arguments[5].isEmpty()) { // as with flink run --fromSavepoint PATH --allowNonRestoredState
            configuration.setString("execution.state-recovery.path", arguments[5]);
            configuration.setString("execution.state-recovery.ignore-unclaimed-state", "true");
        }
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setGroupId(arguments[1])
            .setTopics(arguments[2])
            .setProperty("isolation.level", "read_committed")
            .setStartingOffsets(start())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(2, configuration);
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "source").uid(arguments[4])
            .keyBy(number -> number.substring(number.length() - 1), Types.STRING)
            .process(new Count()).uid("count")
            .addSink(new Append(folder.resolve("counts").toString())).uid("append").setParallelism(1);
        JobClient job = flink.executeAsync();
        while (System.in.read() >= 0) {
            // the test still needs it
        }
        String savepoints = folder.resolve("savepoints").toUri().toString();
        String savepoint = job.stopWithSavepoint(false, savepoints, SavepointFormatType.CANONICAL).get();
        job.getJobExecutionResult().get();
        Files.writeString(folder.resolve("savepoint"), savepoint);
        System.exit(0);
    }

    static OffsetsInitializer start() {
        return OffsetsInitializer.earliest();
    }

    static class Count extends KeyedProcessFunction<String, String, String> {
        private transient ValueState<Long> count;

        @Override
        public void open(Configuration unused) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(String number, Context context, Collector<String> out) throws Exception {
            long now = count.value() == null ? 1 : count.value() + 1;
            count.update(now);
            out.collect(number + " " + now);
        }
    }

    static class Append implements SinkFunction<String> {
        private final String path;

        Append(String path) {
            this.path = path;
        }

        @Override
        public void invoke(String line, Context context) throws Exception {
            Files.writeString(
                Path.of(path), line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        }
    }
}
