import com.google.protobuf.util.JsonFormat;
import crawlercommons.urlfrontier.Urlfrontier.DiscoveredURLItem;
import crawlercommons.urlfrontier.Urlfrontier.KnownURLItem;
import crawlercommons.urlfrontier.Urlfrontier.StringList;
import crawlercommons.urlfrontier.Urlfrontier.URLInfo;
import crawlercommons.urlfrontier.Urlfrontier.URLItem;
import java.nio.file.Files;
import java.nio.file.Path;

/** Items as the client's DumpURLs prints them; of lines with the URL, the seconds or "-", and metadata. */
public class FrontierDump {
  public static void main(String[] files) throws Exception {
    JsonFormat.Printer printer = JsonFormat.printer().omittingInsignificantWhitespace();
    for (String line : Files.readAllLines(Path.of(files[0]))) {
      String[] cells = line.split("\t");
      URLInfo.Builder info = URLInfo.newBuilder().setUrl(cells[0]).setKey(cells[0].split("/")[2]).setCrawlID("DEFAULT");
      for (int i = 2; i < cells.length; i++) {
        String[] pair = cells[i].split("=", 2);
        info.putMetadata(pair[0], StringList.newBuilder().addValues(pair[1]).build());
      }
      URLItem.Builder item = URLItem.newBuilder();
      if (cells[1].equals("-")) {
        item.setDiscovered(DiscoveredURLItem.newBuilder().setInfo(info));
      } else {
        item.setKnown(KnownURLItem.newBuilder().setInfo(info).setRefetchableFromDate(Long.parseLong(cells[1])));
      }
      System.out.println(printer.print(item.setID("DEFAULT_" + cells[0]).build()));
    }
  }
}
