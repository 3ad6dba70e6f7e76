import io.nats.client.Connection;
import io.nats.client.JetStream;
import io.nats.client.JetStreamManagement;
import io.nats.client.KeyValue;
import io.nats.client.Message;
import io.nats.client.MessageTtl;
import io.nats.client.Nats;
import io.nats.client.ObjectStore;
import io.nats.client.api.KeyValueConfiguration;
import io.nats.client.api.KeyValueEntry;
import io.nats.client.api.MessageInfo;
import io.nats.client.api.ObjectInfo;
import io.nats.client.api.ObjectMeta;
import io.nats.client.api.ObjectStoreConfiguration;
import io.nats.client.api.StorageType;
import io.nats.client.impl.Headers;
import io.nats.client.impl.NatsMessage;
import io.nats.client.support.JsonParser;
import io.nats.client.support.JsonValue;
import io.nats.client.support.JsonValueUtils;
import io.nats.service.Discovery;
import io.nats.service.Group;
import io.nats.service.Service;
import io.nats.service.ServiceBuilder;
import io.nats.service.ServiceEndpoint;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Operations of jnats. Each line of input is a JSON request, and each line of output its reply.
 * tests/interop/clients.py lists the operations.
 */
public class Peer {
  private final Connection nc;
  private final JetStream js;
  private final JetStreamManagement jsm;
  private final Map<String, Service> services = new HashMap<>();

  Peer(Connection nc) throws Exception {
    this.nc = nc;
    js = nc.jetStream();
    jsm = nc.jetStreamManagement();
  }

  /** The value as JSON, since that of jnats takes no nested maps and trims strings. */
  static JsonValue json(Object value) {
    if (value instanceof Map<?, ?> map) {
      Map<String, JsonValue> found = new HashMap<>();
      map.forEach((name, each) -> found.put(String.valueOf(name), json(each)));
      return new JsonValue(found);
    }
    if (value instanceof List<?> list) {
      return new JsonValue(list.stream().map(Peer::json).toList());
    }
    if (value instanceof String string) {
      return new JsonValue(string);
    }
    return JsonValueUtils.toJsonValue(value);
  }

  static String text(JsonValue r, String name) {
    return JsonValueUtils.readString(r, name, "");
  }

  static byte[] data(JsonValue r) {
    return Base64.getDecoder().decode(text(r, "value"));
  }

  static String base64(byte[] bytes) {
    return Base64.getEncoder().encodeToString(bytes == null ? new byte[0] : bytes);
  }

  static Map<String, Object> entry(KeyValueEntry e) {
    Map<String, Object> found = new HashMap<>();
    found.put("key", e.getKey());
    found.put("value", base64(e.getValue()));
    found.put("revision", e.getRevision());
    found.put(
        "operation",
        switch (e.getOperation()) {
          case PUT -> "PUT";
          case DELETE -> "DEL";
          case PURGE -> "PURGE";
        });
    return found;
  }

  static Map<String, List<String>> grouped(Headers headers) {
    Map<String, List<String>> found = new HashMap<>();
    if (headers != null) {
      headers.forEach((name, values) -> found.put(name, new ArrayList<>(values)));
    }
    return found;
  }

  static Map<String, Object> info(ObjectInfo o) {
    Map<String, Object> found = new HashMap<>();
    found.put("name", o.getObjectName());
    found.put("description", o.getDescription() == null ? "" : o.getDescription());
    found.put("headers", grouped(o.getHeaders()));
    found.put("metadata", o.getMetaData() == null ? Map.of() : o.getMetaData());
    found.put("size", o.getSize());
    found.put("chunks", o.getChunks());
    found.put("digest", o.getDigest() == null ? "" : o.getDigest());
    found.put("deleted", o.isDeleted());
    if (o.getLink() != null) {
      String name = o.getLink().getObjectName();
      found.put("link", List.of(o.getLink().getBucket(), name == null ? "" : name));
    }
    return found;
  }

  Map<String, ?> keys(String op, JsonValue r) throws Exception {
    String bucket = text(r, "bucket");
    if (op.equals("kv_create")) {
      KeyValueConfiguration.Builder config =
          KeyValueConfiguration.builder(bucket)
              .maxHistoryPerKey(JsonValueUtils.readInteger(r, "history", 1))
              .description(text(r, "description"))
              .metadata(JsonValueUtils.readStringStringMap(r, "metadata"))
              .storageType(StorageType.Memory);
      int marker = JsonValueUtils.readInteger(r, "marker_ttl", 0);
      if (marker > 0) {
        config.limitMarker(Duration.ofSeconds(marker));
      }
      nc.keyValueManagement().create(config.build());
      return Map.of();
    }
    KeyValue kv = nc.keyValue(bucket);
    String key = text(r, "key");
    int ttl = JsonValueUtils.readInteger(r, "ttl", 0);
    switch (op) {
      case "kv_put":
        return Map.of("revision", kv.put(key, data(r)));
      case "kv_insert":
        return Map.of(
            "revision",
            ttl > 0
                ? kv.create(key, data(r), MessageTtl.seconds(ttl))
                : kv.create(key, data(r)));
      case "kv_update":
        return Map.of(
            "revision", kv.update(key, data(r), JsonValueUtils.readLong(r, "last", 0)));
      case "kv_delete":
        kv.delete(key);
        return Map.of();
      case "kv_purge":
        if (ttl > 0) {
          kv.purge(key, MessageTtl.seconds(ttl));
        } else {
          kv.purge(key);
        }
        return Map.of();
      case "kv_get":
        KeyValueEntry found = kv.get(key);
        if (found == null) {
          throw new IllegalArgumentException("not found");
        }
        return Map.of("entry", entry(found));
      case "kv_history":
        return Map.of("entries", kv.history(key).stream().map(Peer::entry).toList());
      case "kv_keys":
        return Map.of("keys", kv.keys());
      case "kv_status":
        return Map.of(
            "history", kv.getStatus().getMaxHistoryPerKey(),
            "values", kv.getStatus().getEntryCount());
      default:
        throw new IllegalArgumentException("unknown: " + op);
    }
  }

  Map<String, ?> objects(String op, JsonValue r) throws Exception {
    String bucket = text(r, "bucket");
    if (op.equals("obj_create")) {
      nc.objectStoreManagement()
          .create(
              ObjectStoreConfiguration.builder(bucket)
                  .description(text(r, "description"))
                  .metadata(JsonValueUtils.readStringStringMap(r, "metadata"))
                  .storageType(StorageType.Memory)
                  .build());
      return Map.of();
    }
    ObjectStore store = nc.objectStore(bucket);
    String name = text(r, "name");
    switch (op) {
      case "obj_put":
        Headers headers = new Headers();
        JsonValue asked = JsonValueUtils.readValue(r, "headers");
        for (Map.Entry<String, JsonValue> each : asked.map.entrySet()) {
          for (JsonValue value : each.getValue().array) {
            headers.add(each.getKey(), value.string);
          }
        }
        ObjectMeta meta =
            ObjectMeta.builder(name)
                .description(text(r, "description"))
                .headers(headers)
                .metadata(JsonValueUtils.readStringStringMap(r, "metadata"))
                .chunkSize(JsonValueUtils.readInteger(r, "chunk_size", 0))
                .build();
        store.put(meta, new ByteArrayInputStream(data(r)));
        return Map.of();
      case "obj_get":
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        store.get(name, out);
        return Map.of("value", base64(out.toByteArray()));
      case "obj_info":
        ObjectInfo found = store.getInfo(name);
        if (found == null) {
          throw new IllegalArgumentException("not found");
        }
        return Map.of("info", info(found));
      case "obj_list":
        return Map.of(
            "names", store.getList().stream().map(ObjectInfo::getObjectName).toList());
      case "obj_update":
        String renamed = JsonValueUtils.readString(r, "new_name", name);
        store.updateMeta(
            name, ObjectMeta.builder(renamed).description(text(r, "description")).build());
        return Map.of();
      case "obj_delete":
        store.delete(name);
        return Map.of();
      case "obj_link":
        store.addLink(name, store.getInfo(text(r, "target")));
        return Map.of();
      case "obj_link_store":
        store.addBucketLink(name, nc.objectStore(text(r, "target")));
        return Map.of();
      default:
        throw new IllegalArgumentException("unknown: " + op);
    }
  }

  Map<String, ?> serve(String op, JsonValue r) throws Exception {
    String name = text(r, "name");
    switch (op) {
      case "svc_start":
        ServiceEndpoint upper =
            ServiceEndpoint.builder()
                .group(new Group(name))
                .endpointName("upper")
                .endpointMetadata(Map.of("of", "endpoint"))
                .handler(
                    msg -> {
                      String asked = new String(msg.getData(), StandardCharsets.UTF_8);
                      if (asked.equals("fail")) {
                        msg.respondStandardError(nc, "bad input", 422);
                      } else {
                        msg.respond(nc, asked.toUpperCase(Locale.ROOT), msg.getHeaders());
                      }
                    })
                .build();
        Service service =
            new ServiceBuilder()
                .connection(nc)
                .name(name)
                .version("1.2.3")
                .description(text(r, "description"))
                .metadata(JsonValueUtils.readStringStringMap(r, "metadata"))
                .addServiceEndpoint(upper)
                .build();
        service.startService();
        nc.flush(Duration.ofSeconds(10));
        services.put(name, service);
        return Map.of();
      case "svc_stop":
        services.remove(name).stop();
        return Map.of();
      case "svc_call":
        Message reply = nc.request(text(r, "subject"), data(r), Duration.ofSeconds(10));
        Headers headers = reply.getHeaders() == null ? new Headers() : reply.getHeaders();
        String code = headers.getFirst("Nats-Service-Error-Code");
        String description = headers.getFirst("Nats-Service-Error");
        return Map.of(
            "value", base64(reply.getData()),
            "code", code == null ? "" : code,
            "description", description == null ? "" : description);
      case "svc_verbs":
        Discovery discovery = new Discovery(nc, 10000, 1);
        return Map.of(
            "PING", JsonParser.parse(discovery.ping(name).get(0).toJson()),
            "INFO", JsonParser.parse(discovery.info(name).get(0).toJson()),
            "STATS", JsonParser.parse(discovery.stats(name).get(0).toJson()));
      default:
        throw new IllegalArgumentException("unknown: " + op);
    }
  }

  Map<String, ?> messages(String op, JsonValue r) throws Exception {
    switch (op) {
      case "publish":
        Headers headers = new Headers();
        for (JsonValue pair : JsonValueUtils.readArray(r, "headers")) {
          headers.add(pair.array.get(0).string, pair.array.get(1).string);
        }
        NatsMessage msg =
            NatsMessage.builder()
                .subject(text(r, "subject"))
                .headers(headers)
                .data(data(r))
                .build();
        return Map.of("seq", js.publish(msg).getSeqno());
      case "get_msg":
        MessageInfo found =
            jsm.getMessage(text(r, "stream"), JsonValueUtils.readLong(r, "seq", 0));
        return Map.of(
            "subject", found.getSubject(),
            "value", base64(found.getData()),
            "headers", grouped(found.getHeaders()));
      default:
        throw new IllegalArgumentException("unknown: " + op);
    }
  }

  Map<String, ?> run(JsonValue r) throws Exception {
    String op = text(r, "op");
    return switch (op.substring(0, 2)) {
      case "kv" -> keys(op, r);
      case "ob" -> objects(op, r);
      case "sv" -> serve(op, r);
      default -> messages(op, r);
    };
  }

  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    try (Connection nc = Nats.connect(args[0])) {
      Peer peer = new Peer(nc);
      String line;
      while ((line = in.readLine()) != null) {
        Map<String, ?> reply;
        try {
          reply = peer.run(JsonParser.parse(line));
        } catch (Exception error) {
          reply = Map.of("error", String.valueOf(error));
        }
        out.println(json(reply).toJson());
      }
    }
  }
}
