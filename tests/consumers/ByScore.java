import org.apache.hadoop.io.Text;
import org.apache.nutch.crawl.CrawlDatum;
import org.apache.nutch.scoring.AbstractScoringFilter;

/** The one rule of Nutch's scoring-opic that a generator asks for; that plugin is not among its jars. */
public class ByScore extends AbstractScoringFilter {
  @Override
  public float generatorSortValue(Text url, CrawlDatum datum, float initSort) {
    return datum.getScore() * initSort;
  }
}
