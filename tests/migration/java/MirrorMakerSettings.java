package org.apache.kafka.connect.mirror;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.utils.Utils;

/**
 * Answers questions with MirrorMaker 2's own classes: one question, a JSON object, per line of standard input, and one
 * answer per line of standard output. It is in their package because most of it is package-private.
 */
public final class MirrorMakerSettings {
    private static final ObjectMapper JSON = new ObjectMapper();

    private MirrorMakerSettings() {
    }

    public static void main(String[] arguments) throws Exception {
        var questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            JsonNode answer;
            try {
                answer = answer(JSON.readTree(line));
            } catch (RuntimeException error) {
                answer = JSON.createObjectNode().put("error", error.toString());
            }
            System.out.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            System.out.flush();
        }
    }

    private static JsonNode answer(JsonNode question) throws Exception {
        return switch (question.get("about").asText()) {
            case "file" -> file(question.get("path").asText());
            case "keys" -> keys();
            case "load" -> load(question.get("texts"));
            case "pattern" -> pattern(question);
            case "values" -> values(question);
            default -> throw new IllegalArgumentException(question.toString());
        };
    }

    /** The keys and values of each text (its bytes in hexadecimal), in their order; null if Java refuses it. */
    private static ArrayNode load(JsonNode texts) throws Exception {
        ArrayNode found = JSON.createArrayNode();
        for (JsonNode text : texts) {
            ArrayNode entries = JSON.createArrayNode();
            boolean[] half = {false};
            var properties = new Properties() {
                @Override
                public synchronized Object put(Object key, Object value) {
                    half[0] |= !StandardCharsets.UTF_16.newEncoder().canEncode(key.toString() + value);
                    entries.addArray().add(key.toString()).add(value.toString());
                    return null;
                }
            };
            try {
                properties.load(new ByteArrayInputStream(HexFormat.of().parseHex(text.asText())));
                found.add(half[0] ? null : entries); // half a character, which is no text
            } catch (IllegalArgumentException error) {
                found.addNull();
            }
        }
        return found;
    }

    private static ObjectNode file(String path) throws Exception {
        Map<String, String> properties = Utils.propsToStringMap(Utils.loadProps(path));
        ObjectNode found = JSON.createObjectNode();
        found.set("properties", strings(properties));
        var raw = new TreeMap<>(properties);
        raw.put("plugin.discovery", "service_load"); // the other ways scan the class path for seconds
        var config = new MirrorMakerConfig(raw);
        ArrayNode clusters = found.putArray("clusters");
        new TreeSet<>(config.clusters()).forEach(clusters::add);
        ObjectNode clients = found.putObject("clients");
        for (String cluster : config.clusters()) {
            ObjectNode client = clients.putObject(cluster);
            client.set("all", strings(config.clusterProps(cluster)));
            try {
                MirrorClientConfig settings = config.clientConfig(cluster);
                client.set("consumer", typed(settings.consumerConfig()));
                client.set("producer", typed(settings.producerConfig()));
                client.set("admin", typed(settings.adminConfig()));
            } catch (ConfigException error) {
                client.put("error", error.getMessage());
            }
        }
        ObjectNode pairs = found.putObject("pairs");
        for (SourceAndTarget pair : config.clusterPairs()) {
            ObjectNode of = pairs.putObject(pair.toString());
            of.set("worker", strings(config.workerConfig(pair)));
            for (var connector : List.of(
                    MirrorSourceConnector.class, MirrorCheckpointConnector.class, MirrorHeartbeatConnector.class)) {
                of.set(connector.getSimpleName(), strings(config.connectorBaseConfig(pair, connector)));
            }
            try {
                var source = new MirrorSourceConfig(config.connectorBaseConfig(pair, MirrorSourceConnector.class));
                of.put("enabled", source.enabled());
                of.set("consumer", strings(source.sourceConsumerConfig("any")));
                of.set("offset syncs", strings(source.offsetSyncsTopicProducerConfig()));
                of.set("source admin", strings(source.sourceAdminConfig("any")));
                of.set("target admin", strings(source.targetAdminConfig("any")));
            } catch (ConfigException error) {
                of.put("error", error.getMessage());
            }
        }
        return found;
    }

    private static ObjectNode strings(Map<String, ?> settings) {
        ObjectNode found = JSON.createObjectNode();
        settings.forEach((key, value) -> {
            if (!key.equals("plugin.discovery")) {
                found.put(key, ConfigDef.convertToString(value, null));
            }
        });
        return found;
    }

    /** Values of the clients' keys, which have types, as text. */
    private static ObjectNode typed(Map<String, ?> settings) {
        ObjectNode found = JSON.createObjectNode();
        var keys = MirrorClientConfig.CLIENT_CONFIG_DEF.configKeys();
        settings.forEach((key, value) -> found.put(
            key, value instanceof Password secret ? secret.value() : ConfigDef.convertToString(value, keys.get(key).type)));
        return found;
    }

    private static ObjectNode keys() {
        ObjectNode found = JSON.createObjectNode();
        found.set("client", defaults(MirrorClientConfig.CLIENT_CONFIG_DEF));
        found.set("source", defaults(MirrorSourceConfig.CONNECTOR_CONFIG_DEF));
        found.set("checkpoint", defaults(MirrorCheckpointConfig.CONNECTOR_CONFIG_DEF));
        found.set("heartbeat", defaults(MirrorHeartbeatConfig.CONNECTOR_CONFIG_DEF));
        found.set("producer", defaults(ProducerConfig.configDef()));
        found.set("consumer", defaults(ConsumerConfig.configDef()));
        return found;
    }

    /** The keys with their defaults as text; null if there is none. */
    private static ObjectNode defaults(ConfigDef definition) {
        ObjectNode found = JSON.createObjectNode();
        definition.configKeys().forEach((name, key) ->
            found.put(name, key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null));
        return found;
    }

    /** What a client reads from each text, as text; null if it refuses that. A default is that of a client without settings. */
    private static ObjectNode values(JsonNode question) {
        ConfigDef definition = question.get("client").asText().equals("producer")
            ? ProducerConfig.configDef() : ConsumerConfig.configDef();
        ConfigDef.ConfigKey key = definition.configKeys().get(question.get("key").asText());
        ArrayNode read = JSON.createArrayNode();
        for (JsonNode text : question.get("texts")) {
            try {
                Object value = ConfigDef.parseType(key.name, text.asText(), key.type);
                if (key.validator != null) {
                    key.validator.ensureValid(key.name, value);
                }
                read.add(ConfigDef.convertToString(value, key.type));
            } catch (ConfigException error) {
                read.addNull();
            }
        }
        ObjectNode found = JSON.createObjectNode().put("type", key.type.toString());
        found.put("default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
        found.set("values", read);
        return found;
    }

    /** Which of the names a list of patterns matches; null if it is no list of patterns. */
    private static JsonNode pattern(JsonNode question) {
        var fields = (List<?>) ConfigDef.parseType("topics", question.get("list").asText(), ConfigDef.Type.LIST);
        ArrayNode found = JSON.createArrayNode();
        try {
            Pattern pattern = MirrorUtils.compilePatternList(fields.stream().map(Object::toString).toList());
            question.get("names").forEach(name -> {
                if (pattern.matcher(name.asText()).matches()) {
                    found.add(name.asText());
                }
            });
        } catch (PatternSyntaxException error) {
            return JSON.nullNode();
        }
        return found;
    }
}
