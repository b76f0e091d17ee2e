import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Producers and consumers that move to the cluster that files name, and note what they have done.
 *
 * It does the same as client_program.py, from the same settings. Argument: the file of the settings.
 */
public final class SwitchClients {
    private static final int POLL_MS = 50;
    private static final int IN_TRANSACTION = 5;
    private static final int COMMIT_MS = 1000;

    private final Properties settings = new Properties();
    private final Path folder;

    private SwitchClients(Path file) throws IOException {
        try (var reader = Files.newBufferedReader(file)) {
            settings.load(reader);
        }
        folder = Path.of(settings.getProperty("folder"));
    }

    public static void main(String[] arguments) throws Exception {
        var clients = new SwitchClients(Path.of(arguments[0]));
        for (String key : clients.settings.stringPropertyNames()) {
            int dot = key.indexOf('.');
            String name = key.substring(dot + 1);
            String[] value = clients.settings.getProperty(key).split(" ", 2);
            switch (key.substring(0, Math.max(0, dot))) {
                case "producer" -> clients.start(name, () -> clients.produce(name, value[0], value[1].split(",")));
                case "consumer" -> clients.start(name, () -> clients.consume(name, value[0], value[1].split(",")));
                default -> { }
            }
        }
    }

    private interface Work {
        void run() throws Exception;
    }

    private void start(String name, Work work) {
        new Thread(() -> {
            try {
                work.run();
            } catch (Throwable error) {
                error.printStackTrace();
                System.exit(1);
            }
        }, name).start();
    }

    private String place(String kind) throws IOException {
        return Files.readString(folder.resolve(kind)).strip();
    }

    private Map<String, Object> options(String cluster, String user) {
        var options = new HashMap<String, Object>();
        options.put("bootstrap.servers", settings.getProperty("bootstrap." + cluster));
        options.put("security.protocol", "SASL_PLAINTEXT");
        options.put("sasl.mechanism", "PLAIN");
        options.put("sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required username=\""
            + user + "\" password=\"" + user + "\";");
        options.put("reconnect.backoff.max.ms", 500);
        options.put("metadata.max.age.ms", 2000);
        options.put("request.timeout.ms", 8000);
        return options;
    }

    /** One client's file. */
    private final class Notes {
        private final BufferedWriter file;

        Notes(String name) throws IOException {
            file = Files.newBufferedWriter(folder.resolve("notes").resolve(name), StandardCharsets.UTF_8,
                StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        }

        synchronized void add(String kind, String cluster, String... more) {
            try {
                file.write(kind + " " + cluster + " " + System.currentTimeMillis());
                for (String one : more) {
                    file.write(" " + one);
                }
                file.write("\n");
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        synchronized void flush() throws IOException {
            file.flush();
        }
    }

    private void produce(String name, String kind, String[] topics) throws Exception {
        var notes = new Notes(name);
        var number = new int[1];
        while (true) {
            String cluster = place("producers");
            var options = options(cluster, "alice");
            options.put("acks", "all");
            options.put("enable.idempotence", true);
            options.put("linger.ms", 2);
            options.put("delivery.timeout.ms", 15000);
            options.put("max.block.ms", 10000);
            options.put("key.serializer", StringSerializer.class);
            options.put("value.serializer", StringSerializer.class);
            boolean transactional = kind.equals("transactional");
            if (transactional) {
                options.put("transactional.id", name);
                options.put("transaction.timeout.ms", 15000);
            }
            var producer = new KafkaProducer<String, String>(options);
            try {
                if (transactional) {
                    producer.initTransactions();
                }
                while (place("producers").equals(cluster)) {
                    if (transactional) {
                        transaction(producer, notes, cluster, name, topics, number);
                    } else {
                        record(producer, notes, cluster, name, topics, number);
                    }
                    notes.flush();
                }
            } catch (KafkaException error) {
                notes.add("F", cluster, error.getClass().getSimpleName());
                notes.flush();
                Thread.sleep(POLL_MS);
            } finally {
                // It moves as an application does that is started again: what is not acknowledged is lost.
                producer.close(Duration.ZERO);
                notes.flush();
            }
        }
    }

    private ProducerRecord<String, String> next(String name, String[] topics, int[] number) {
        number[0]++;
        String value = name + "-" + number[0];
        return new ProducerRecord<>(topics[number[0] % topics.length], value, value);
    }

    private long everyMs() {
        return Math.max(1, (long) (1000 / Double.parseDouble(settings.getProperty("per.second"))));
    }

    private void record(KafkaProducer<String, String> producer, Notes notes, String cluster, String name,
            String[] topics, int[] number) throws Exception {
        var record = next(name, topics, number);
        producer.send(record, (metadata, error) -> {
            if (error == null) {
                notes.add("A", cluster, record.value());
            } else {
                notes.add("F", cluster, error.getClass().getSimpleName());
            }
        });
        Thread.sleep(everyMs());
    }

    private void transaction(KafkaProducer<String, String> producer, Notes notes, String cluster, String name,
            String[] topics, int[] number) throws Exception {
        producer.beginTransaction();
        var values = new ArrayList<String>();
        try {
            for (int n = 0; n < IN_TRANSACTION; n++) {
                var record = next(name, topics, number);
                producer.send(record);
                values.add(record.value());
                Thread.sleep(everyMs());
            }
            commit(producer);
        } catch (ProducerFencedException | InvalidProducerEpochException | OutOfOrderSequenceException error) {
            throw error;
        } catch (KafkaException error) {
            Throwable cause = error instanceof AuthorizationException || error.getCause() == null ? error : error.getCause();
            notes.add("F", cluster, cause.getClass().getSimpleName());
            producer.abortTransaction();
            Thread.sleep(POLL_MS);
            return;
        }
        for (String value : values) {
            notes.add("A", cluster, value);
        }
    }

    /** A commit that timed out may have been made, so it can only be repeated: the producer refuses to abort then. */
    private void commit(KafkaProducer<String, String> producer) {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException error) {
                error.printStackTrace();
            }
        }
    }

    private void consume(String name, String group, String[] topics) throws Exception {
        var notes = new Notes(name);
        while (true) {
            String cluster = place("consumers");
            if (!cluster.isEmpty()) {
                try {
                    read(notes, cluster, group, topics);
                } catch (KafkaException error) {
                    error.printStackTrace();
                }
            }
            Thread.sleep(POLL_MS);
        }
    }

    private void read(Notes notes, String cluster, String group, String[] topics) throws Exception {
        var options = options(cluster, "bob");
        options.put("group.id", group);
        options.put("auto.offset.reset", "earliest");
        options.put("enable.auto.commit", false);
        options.put("isolation.level", "read_committed");
        options.put("session.timeout.ms", 20000);
        options.put("fetch.min.bytes", 100000); // Answers and commits are what costs brokers.
        options.put("fetch.max.wait.ms", 500);
        options.put("key.deserializer", StringDeserializer.class);
        options.put("value.deserializer", StringDeserializer.class);
        try (var consumer = new KafkaConsumer<String, String>(options)) {
            consumer.subscribe(List.of(topics));
            boolean goesOn = true;
            boolean isBehind = false;
            long committedMs = 0;
            var assigned = Set.copyOf(consumer.assignment());
            while (goesOn) {
                goesOn = place("consumers").equals(cluster);
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    notes.add("R", cluster, record.value());
                    isBehind = true;
                }
                notes.flush();
                if (isBehind && (!goesOn || System.currentTimeMillis() - committedMs >= COMMIT_MS)) {
                    // What was read of partitions that have left since is not committed.
                    String known = consumer.assignment().equals(assigned) ? "C" : "U";
                    try {
                        consumer.commitSync(Duration.ofSeconds(10));
                    } catch (KafkaException error) {
                        known = "U";
                    }
                    notes.add(known, cluster);
                    notes.flush();
                    isBehind = false;
                    assigned = Set.copyOf(consumer.assignment());
                    committedMs = System.currentTimeMillis();
                }
            }
        }
    }
}
