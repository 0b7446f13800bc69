import java.util.List;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.http.HttpServerTransport;
import org.opensearch.index.reindex.ReindexPlugin;
import org.opensearch.node.Node;
import org.opensearch.painless.PainlessPlugin;
import org.opensearch.transport.Netty4Plugin;

/** An OpenSearch of one node in a folder; prints its port, and lives until its input ends. */
public class OneNode extends Node {
  OneNode(Settings settings) {
    super(new Environment(settings, null), List.of(Netty4Plugin.class, PainlessPlugin.class, ReindexPlugin.class), true);
  }

  public static void main(String[] words) throws Exception {
    Settings settings = Settings.builder()
        .put("path.home", words[0])
        .put("cluster.name", "recrawl")
        .put("node.name", "one")
        .put("discovery.type", "single-node")
        .put("network.host", "127.0.0.1")
        .put("transport.type", "netty4")
        .put("transport.port", "0")
        .put("http.type", "netty4")
        .put("http.port", "0")
        .put("cluster.routing.allocation.disk.threshold_enabled", false)
        .build();
    try (OneNode node = new OneNode(settings)) {
      node.start();
      System.out.println(node.injector().getInstance(HttpServerTransport.class).boundAddress().publishAddress().getPort());
      while (System.in.read() >= 0) {}
    }
  }
}
