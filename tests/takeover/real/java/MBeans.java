import com.sun.tools.attach.VirtualMachine;
import java.util.Arrays;
import java.util.TreeSet;
import javax.management.MBeanAttributeInfo;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** Prints the MBeans of another JVM that match a pattern: on each line the name, a tab, and the attributes. */
public final class MBeans {
    private MBeans() {
    }

    /** The arguments are the process id and the pattern. */
    public static void main(String[] arguments) throws Exception {
        VirtualMachine machine = VirtualMachine.attach(arguments[0]);
        String address = machine.startLocalManagementAgent();
        machine.detach();
        try (var connector = JMXConnectorFactory.connect(new JMXServiceURL(address))) {
            var connection = connector.getMBeanServerConnection();
            for (ObjectName name : connection.queryNames(new ObjectName(arguments[1]), null)) {
                var attributes = new TreeSet<String>();
                Arrays.stream(connection.getMBeanInfo(name).getAttributes())
                    .map(MBeanAttributeInfo::getName)
                    .forEach(attributes::add);
                System.out.println(name + "\t" + String.join(" ", attributes));
            }
        }
    }
}
