package org.apache.kafka.connect.mirror;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * Answers questions with MirrorMaker 2's own classes: one question, a JSON object, per line of standard input, and one
 * answer per line of standard output. It is in their package because what writes their records is package-private.
 */
public final class KafkasClasses {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final Duration TIMEOUT = Duration.ofSeconds(60);

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
            case "checkpoint" -> checkpoint(question);
            case "sync" -> sync(question);
            case "position" -> position(question);
            case "translation" -> translation(question);
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

    private static ObjectNode checkpoint(JsonNode question) {
        var checkpoint = new Checkpoint(
            question.get("group").asText(),
            new TopicPartition(question.get("topic").asText(), question.get("partition").asInt()),
            question.get("upstream").asLong(),
            question.get("downstream").asLong(),
            question.get("metadata").asText());
        var read = Checkpoint.deserializeRecord(record(question));
        return bytes(checkpoint.recordKey(), checkpoint.recordValue())
            .put("group", read.consumerGroupId())
            .put("topic", read.topicPartition().topic())
            .put("partition", read.topicPartition().partition())
            .put("upstream", read.upstreamOffset())
            .put("downstream", read.downstreamOffset())
            .put("metadata", read.metadata());
    }

    private static ObjectNode sync(JsonNode question) {
        var sync = new OffsetSync(partition(question), question.get("upstream").asLong(), question.get("downstream").asLong());
        return bytes(sync.recordKey(), sync.recordValue());
    }

    /** As {@code OffsetStorageWriter} writes it, with the converter of the worker. */
    private static ObjectNode position(JsonNode question) {
        var converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), true);
        var tp = partition(question);
        byte[] key = converter.fromConnectData("any", null, List.of(
            question.get("connector").asText(), MirrorUtils.wrapPartition(tp, question.get("cluster").asText())));
        byte[] value = converter.fromConnectData("any", null, MirrorUtils.wrapOffset(question.get("offset").asLong()));
        int partitions = question.get("partitions").asInt();
        return bytes(key, value).put("partition", Utils.toPositive(Utils.murmur2(key)) % partitions);
    }

    private static TopicPartition partition(JsonNode question) {
        return new TopicPartition(question.get("topic").asText(), question.get("partition").asInt());
    }

    /** As a user configures them for a cluster; "naming" may be "identity". */
    private static Map<String, Object> properties(JsonNode question) {
        Map<String, Object> properties = new HashMap<>(Map.of("bootstrap.servers", question.get("servers").asText()));
        if (question.path("naming").asText().equals("identity")) {
            properties.put("replication.policy.class", IdentityReplicationPolicy.class.getName());
            properties.put(IdentityReplicationPolicy.SOURCE_CLUSTER_ALIAS_CONFIG, question.get("source").asText());
        }
        return properties;
    }

    /** In both forms: of one group, and of all groups that match a pattern. */
    private static ObjectNode translation(JsonNode question) throws Exception {
        Map<String, Object> properties = properties(question);
        String source = question.get("source").asText();
        var ofGroup = RemoteClusterUtils.translateOffsets(properties, source, question.get("group").asText(), TIMEOUT);
        var pattern = Pattern.compile(question.get("pattern").asText());
        ObjectNode ofPattern = JSON.createObjectNode();
        RemoteClusterUtils.translateOffsets(properties, source, pattern, TIMEOUT)
            .forEach((group, offsets) -> ofPattern.set(group, offsets(offsets)));
        ObjectNode found = JSON.createObjectNode();
        found.set("group", offsets(ofGroup));
        found.set("pattern", ofPattern);
        return found;
    }

    private static ObjectNode offsets(Map<TopicPartition, OffsetAndMetadata> offsets) {
        ObjectNode found = JSON.createObjectNode();
        offsets.forEach((partition, offset) ->
            found.putArray(partition.toString()).add(offset.offset()).add(offset.metadata()));
        return found;
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
            .put("checkpoints", policy.checkpointsTopic(topic))
            .put("internal", policy.isInternalTopic(topic))
            .put("carried", connector.shouldReplicateTopic(topic));
    }

    private static ObjectNode cluster(JsonNode question) throws Exception {
        Map<String, Object> properties = properties(question);
        String source = question.get("source").asText();
        ObjectNode found = JSON.createObjectNode();
        found.set("upstream", names(RemoteClusterUtils.upstreamClusters(properties)));
        found.set("heartbeats", names(RemoteClusterUtils.heartbeatTopics(properties)));
        found.set("checkpoints", names(RemoteClusterUtils.checkpointTopics(properties)));
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
