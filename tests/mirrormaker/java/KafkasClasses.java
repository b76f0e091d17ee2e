package org.apache.kafka.connect.mirror;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * Answers questions with MirrorMaker 2's own classes: one question, a JSON object, per line of standard input, and one
 * answer per line of standard output. It is in their package because what writes their records is package-private.
 */
public final class KafkasClasses {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    private KafkasClasses() {
    }

    public static void main(String[] arguments) throws Exception {
        var questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            System.out.write((JSON.writeValueAsString(answer(JSON.readTree(line))) + "\n").getBytes(StandardCharsets.UTF_8));
            System.out.flush();
        }
    }

    private static JsonNode answer(JsonNode question) throws Exception {
        return switch (question.get("about").asText()) {
            case "heartbeat" -> heartbeat(question);
            case "name" -> name(question);
            case "cluster" -> cluster(question);
            default -> throw new IllegalArgumentException(question.toString());
        };
    }

    private static ObjectNode heartbeat(JsonNode question) {
        var heartbeat = new Heartbeat(
            question.get("source").asText(), question.get("target").asText(), question.get("timestamp").asLong());
        var read = Heartbeat.deserializeRecord(record(question));
        return bytes(heartbeat.recordKey(), heartbeat.recordValue())
            .put("source", read.sourceClusterAlias())
            .put("target", read.targetClusterAlias())
            .put("timestamp", read.timestamp());
    }

    /** Names by the default policy; "carried" is whether a flow that no topic filter accepts copies the topic. */
    private static ObjectNode name(JsonNode question) {
        String topic = question.get("topic").asText();
        var policy = new DefaultReplicationPolicy();
        policy.configure(Map.of(DefaultReplicationPolicy.SEPARATOR_CONFIG, question.get("separator").asText()));
        var connector = new MirrorSourceConnector(
            new SourceAndTarget("any source", question.get("target").asText()), policy, any -> false, any -> true);
        return JSON.createObjectNode()
            .put("source", policy.topicSource(topic))
            .put("upstream", policy.upstreamTopic(topic))
            .put("original", policy.originalTopic(topic))
            .put("internal", policy.isInternalTopic(topic))
            .put("carried", connector.shouldReplicateTopic(topic));
    }

    private static ObjectNode cluster(JsonNode question) throws Exception {
        Map<String, Object> properties = new HashMap<>(Map.of("bootstrap.servers", question.get("servers").asText()));
        String source = question.get("source").asText();
        ObjectNode found = JSON.createObjectNode();
        found.set("upstream", names(RemoteClusterUtils.upstreamClusters(properties)));
        found.set("heartbeats", names(RemoteClusterUtils.heartbeatTopics(properties)));
        found.put("hops", RemoteClusterUtils.replicationHops(properties, source));
        try (var client = new MirrorClient(properties)) {
            found.set("remote", names(client.remoteTopics(source)));
        }
        return found;
    }

    private static ConsumerRecord<byte[], byte[]> record(JsonNode question) {
        byte[] key = HEX.parseHex(question.get("key").asText());
        return new ConsumerRecord<>("any", 0, 0, key, HEX.parseHex(question.get("value").asText()));
    }

    private static ObjectNode bytes(byte[] key, byte[] value) {
        return JSON.createObjectNode().put("key", HEX.formatHex(key)).put("value", HEX.formatHex(value));
    }

    private static ArrayNode names(Set<String> found) {
        ArrayNode names = JSON.createArrayNode();
        new TreeSet<>(found).forEach(names::add);
        return names;
    }
}
