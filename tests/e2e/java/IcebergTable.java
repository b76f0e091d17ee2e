import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.hadoop.HadoopCatalog;
import org.apache.iceberg.io.CloseableIterable;

/**
 * Commits an empty snapshot with a property to a table, or prints the field "id" of all rows. Arguments: warehouse,
 * table, and the property's name and value, or nothing more.
 */
class IcebergTable {
    public static void main(String[] arguments) throws IOException {
        Table table = new HadoopCatalog(new Configuration(), arguments[0])
            .loadTable(TableIdentifier.parse(arguments[1]));
        if (arguments.length > 2) {
            table.newAppend().set(arguments[2], arguments[3]).commit();
            return;
        }
        try (CloseableIterable<Record> rows = IcebergGenerics.read(table).build()) {
            rows.forEach(row -> System.out.println(row.getField("id")));
        }
    }
}
