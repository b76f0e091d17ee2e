package org.apache.kafka.connect.mirror;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** Answers which configurations and ACLs MirrorMaker 2 brings to the target if nothing is configured. */
public final class MirrorMakerDefaults {
    private static final ObjectMapper JSON = new ObjectMapper();

    private MirrorMakerDefaults() {
    }

    public static void main(String[] arguments) throws Exception {
        var questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            JsonNode question = JSON.readTree(line);
            JsonNode answer = question.get("about").asText().equals("configs") ? configs(question) : acl(question);
            System.out.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            System.out.flush();
        }
    }

    /** Whether a key is replicated: all keys of a topic, those that the default list names, and those asked for. */
    private static ObjectNode configs(JsonNode question) throws Exception {
        Set<String> keys = new TreeSet<>();
        question.get("keys").forEach(key -> keys.add(key.asText()));
        for (var field : TopicConfig.class.getFields()) {
            if (Modifier.isStatic(field.getModifiers()) && field.getName().endsWith("_CONFIG")) {
                keys.add((String) field.get(null));
            }
        }
        for (String key : DefaultConfigPropertyFilter.CONFIG_PROPERTIES_EXCLUDE_DEFAULT.split(",")) {
            keys.add(key.strip().replace("\\", ""));
        }
        var filter = new DefaultConfigPropertyFilter();
        filter.configure(Map.of());
        ObjectNode found = JSON.createObjectNode();
        keys.forEach(key -> found.put(key, filter.shouldReplicateConfigProperty(key)));
        filter.close();
        return found;
    }

    /** The operation that the target's ACL has, and null if there is none. */
    private static ObjectNode acl(JsonNode question) {
        var connector = new MirrorSourceConnector(
            new SourceAndTarget("a", "b"), new DefaultReplicationPolicy(), any -> true, any -> true);
        var entry = new AccessControlEntry(
            "User:alice", "*", AclOperation.valueOf(question.get("operation").asText()),
            AclPermissionType.valueOf(question.get("permission").asText()));
        var given = new AclBinding(new ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL), entry);
        ObjectNode found = JSON.createObjectNode();
        found.put("operation", connector.shouldReplicateAcl(given)
            ? connector.targetAclBinding(given).entry().operation().name() : null);
        return found;
    }
}
