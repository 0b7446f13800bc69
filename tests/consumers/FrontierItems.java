import com.google.protobuf.util.JsonFormat;
import crawlercommons.urlfrontier.Urlfrontier.KnownURLItem;
import crawlercommons.urlfrontier.Urlfrontier.URLItem;
import java.nio.file.Files;
import java.nio.file.Path;

/** What URLFrontier's messages make of JSON Lines, as its client reads them. */
public class FrontierItems {
  public static void main(String[] files) throws Exception {
    for (String line : Files.readAllLines(Path.of(files[0]))) {
      URLItem.Builder item = URLItem.newBuilder();
      JsonFormat.parser().merge(line, item);
      KnownURLItem known = item.getKnown();
      System.out.println(String.join("\t", item.getItemCase().name(), known.getInfo().getUrl(), known.getInfo().getKey(),
          "" + known.getRefetchableFromDate(), known.getInfo().getCrawlID()));
    }
  }
}
