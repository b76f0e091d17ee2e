import java.util.Map;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** Policies of a broker, as operators write them. */
public final class Policies {
    private static void check(Map<String, String> configs) {
        if (configs.getOrDefault("retention.ms", "").equals("-1")) {
            throw new PolicyViolationException("topics are not kept for ever");
        }
    }

    public static final class Creation implements CreateTopicPolicy {
        @Override
        public void validate(RequestMetadata topic) {
            if (topic.topic().contains("secret")) {
                throw new PolicyViolationException("topic " + topic.topic() + " has no owner");
            }
            check(topic.configs());
        }

        @Override
        public void configure(Map<String, ?> configs) {}

        @Override
        public void close() {}
    }

    public static final class Alteration implements AlterConfigPolicy {
        @Override
        public void validate(RequestMetadata change) {
            if (change.resource().type() == ConfigResource.Type.TOPIC) {
                check(change.configs());
            }
        }

        @Override
        public void configure(Map<String, ?> configs) {}

        @Override
        public void close() {}
    }

    private Policies() {}
}
