import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/**
 * A broker's login handler that takes the tokens of Amazon MSK and of Google's Managed Service: it verifies the
 * signature (version 4) of the first with the one key that it knows, and asks an issuer of whom the second is.
 */
public final class CloudTokens implements AuthenticateCallbackHandler {
    private static final DateTimeFormatter DATE = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC);
    private static final ObjectMapper JSON = new ObjectMapper();
    private final String awsKeyId = System.getProperty("clouds.aws.key.id");
    private final String awsKey = System.getProperty("clouds.aws.key");
    private final String issuer = System.getProperty("clouds.issuer");

    private static final class Refused extends Exception {
        Refused(String status) {
            super(status);
        }
    }

    private record Token(String value, String principalName, long lifetimeMs) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public Long startTimeMs() {
            return null;
        }
    }

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {}

    @Override
    public void close() {}

    @Override
    public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
        for (Callback each : callbacks) {
            if (!(each instanceof OAuthBearerValidatorCallback callback)) {
                throw new UnsupportedCallbackException(each);
            }
            String value = callback.tokenValue();
            try {
                callback.token(value.contains(".") ? ofGoogle(value) : ofAmazon(value));
            } catch (Refused refused) {
                callback.error(refused.getMessage(), null, null);
            } catch (GeneralSecurityException | RuntimeException error) {
                callback.error("malformed", null, null);
            }
        }
    }

    private Token ofAmazon(String value) throws Refused, GeneralSecurityException {
        URI url = URI.create(text(value));
        Map<String, String> query = new TreeMap<>();
        for (String pair : url.getRawQuery().split("&")) {
            String[] parts = pair.split("=", 2);
            query.put(decoded(parts[0]), decoded(parts[1]));
        }
        query.remove("User-Agent");
        String signature = query.remove("X-Amz-Signature");
        String[] scope = query.get("X-Amz-Credential").split("/", 2);
        String date = query.get("X-Amz-Date");
        String canonical = query.entrySet().stream()
                .map(each -> encoded(each.getKey()) + "=" + encoded(each.getValue()))
                .collect(Collectors.joining("&"));
        String request = String.join("\n", "GET", "/", canonical, "host:" + url.getHost(), "", "host", hash(""));
        byte[] key = ("AWS4" + awsKey).getBytes(StandardCharsets.UTF_8);
        for (String part : scope[1].split("/")) {
            key = mac(key, part);
        }
        byte[] expected = mac(key, String.join("\n", "AWS4-HMAC-SHA256", date, scope[1], hash(request)));
        if (!scope[0].equals(awsKeyId) || !MessageDigest.isEqual(expected, HexFormat.of().parseHex(signature))) {
            throw new Refused("bad_signature");
        }
        if (!"kafka-cluster:Connect".equals(query.get("Action"))) {
            throw new Refused("bad_action");
        }
        Instant signed = Instant.from(DATE.parse(date));
        Instant expires = signed.plusSeconds(Math.min(900, Long.parseLong(query.get("X-Amz-Expires"))));
        if (signed.isAfter(Instant.now().plusSeconds(300)) || expires.isBefore(Instant.now())) {
            throw new Refused("expired");
        }
        return new Token(value, awsKeyId, expires.toEpochMilli());
    }

    private Token ofGoogle(String value) throws IOException, Refused {
        String[] parts = value.split("\\.");
        JsonNode claims = JSON.readTree(text(parts[1]));
        if (!"GOOG_OAUTH2_TOKEN".equals(JSON.readTree(text(parts[0])).path("alg").asText())) {
            throw new Refused("bad_algorithm");
        }
        if (Instant.ofEpochSecond(claims.path("exp").asLong()).isBefore(Instant.now())) {
            throw new Refused("expired");
        }
        URI url = URI.create(issuer + "/tokeninfo?access_token=" + encoded(text(parts[2])));
        HttpURLConnection connection = (HttpURLConnection) url.toURL().openConnection();
        connection.setConnectTimeout(10_000);
        connection.setReadTimeout(10_000);
        if (connection.getResponseCode() != 200) {
            throw new Refused("unknown_token");
        }
        String account = JSON.readTree(connection.getInputStream()).path("email").asText();
        if (!account.equals(claims.path("sub").asText())) {
            throw new Refused("bad_account");
        }
        return new Token(value, account, claims.path("exp").asLong() * 1000);
    }

    private static String text(String part) {
        return new String(Base64.getUrlDecoder().decode(part), StandardCharsets.UTF_8);
    }

    private static String decoded(String text) {
        return URLDecoder.decode(text, StandardCharsets.UTF_8);
    }

    private static String encoded(String text) {
        String form = URLEncoder.encode(text, StandardCharsets.UTF_8);
        return form.replace("+", "%20").replace("*", "%2A").replace("%7E", "~");
    }

    private static byte[] mac(byte[] key, String text) throws GeneralSecurityException {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        return mac.doFinal(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String hash(String text) throws GeneralSecurityException {
        byte[] bytes = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
        return HexFormat.of().formatHex(bytes);
    }
}
