import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.MapFile;
import org.apache.hadoop.io.SequenceFile;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.util.ToolRunner;
import org.apache.nutch.crawl.CrawlDatum;
import org.apache.nutch.crawl.CrawlDbReader;
import org.apache.nutch.crawl.Generator;
import org.apache.nutch.crawl.Injector;
import org.apache.nutch.metadata.Nutch;

/** A CrawlDb on this machine, through Nutch's own classes, without its plugins. */
public class NutchDb {
  public static void main(String[] words) throws Exception {
    Configuration conf = new Configuration();
    conf.set("plugin.folders", words[0]);
    conf.set("plugin.includes", ".*");
    conf.set("hadoop.tmp.dir", words[1]);
    Path db = new Path(words[3]);
    switch (words[2]) {
      case "make" -> make(conf, db, words[4]);
      case "inject" -> new Injector(conf).inject(db, new Path(words[4]), words[5].equals("-overwrite"),
          words[5].equals("-update"), false, false, false);
      case "generate" -> generate(conf, db, new Path(words[4]), Long.parseLong(words[5]));
      case "show" -> show(conf, new Path(db, "current/part-r-00000/data"));
      case "dump" -> System.exit(ToolRunner.run(conf, new CrawlDbReader(),
          new String[] {words[3], "-dump", words[4], "-format", words[5]}));
      default -> throw new IllegalArgumentException(words[2]);
    }
  }

  /** Fetched pages: lines of URL, seconds of the fetch, interval in seconds, signature in hex; sorted by URL. */
  static void make(Configuration conf, Path db, String lines) throws Exception {
    try (MapFile.Writer out = new MapFile.Writer(conf, new Path(db, "current/part-r-00000"),
        MapFile.Writer.keyClass(Text.class), SequenceFile.Writer.valueClass(CrawlDatum.class))) {
      for (String line : Files.readAllLines(java.nio.file.Path.of(lines))) {
        String[] cells = line.split("\t");
        int interval = Integer.parseInt(cells[2]);
        CrawlDatum datum = new CrawlDatum(CrawlDatum.STATUS_DB_FETCHED, interval);
        datum.setFetchTime((Long.parseLong(cells[1]) + interval) * 1000L);
        datum.setSignature(java.util.HexFormat.of().parseHex(cells[3]));
        out.append(new Text(cells[0]), datum);
      }
    }
  }

  /** The pages that a segment of at most `top` pages is made of, as `show` has them. */
  static void generate(Configuration conf, Path db, Path segments, long top) throws Exception {
    conf.setInt("db.fetch.interval.max", 7776000);
    conf.set("partition.url.mode", "byHost");
    long now = Math.max(System.currentTimeMillis(),
        java.time.Instant.parse("2026-07-02T00:00:00Z").toEpochMilli());
    Path[] made = new Generator(conf).generate(db, segments, 1, top, now, false, false, false, 1, null);
    for (Path segment : made) show(conf, new Path(segment, CrawlDatum.GENERATE_DIR_NAME + "/part-r-00000"));
  }

  static void show(Configuration conf, Path data) throws Exception {
    try (SequenceFile.Reader in = new SequenceFile.Reader(conf, SequenceFile.Reader.file(data))) {
      Text url = new Text();
      CrawlDatum datum = new CrawlDatum();
      while (in.next(url, datum)) {
        Object fixed = datum.getMetaData().get(Nutch.WRITABLE_FIXED_INTERVAL_KEY);
        System.out.println(String.join("\t", url.toString(), CrawlDatum.getStatusName(datum.getStatus()),
            "" + datum.getScore(), "" + datum.getFetchInterval(), "" + fixed));
      }
    }
  }
}
