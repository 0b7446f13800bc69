import java.nio.file.Files;
import java.nio.file.Path;
import org.archive.modules.CrawlURI;

/** What Heritrix makes of the lines of an action file: a tag of three characters, then URI, hops and via. */
public class HeritrixLines {
  public static void main(String[] files) throws Exception {
    for (String file : files) {
      for (String line : Files.readAllLines(Path.of(file))) {
        try {
          CrawlURI uri = CrawlURI.fromHopsViaString(line.substring(3).trim());
          System.out.println(uri.getURI() + "\t" + uri.getPathFromSeed() + "\t" + uri.getVia());
        } catch (org.apache.commons.httpclient.URIException error) {
          System.out.println("refused\t" + line.length());
        }
      }
    }
  }
}
