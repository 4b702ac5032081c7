// Reads lines of "NUMBER FIRST-URL SECOND-URL". Each case has a kept connection of its own. Prints a JSON line for each.
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

public class Client {
    static String quoted(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char one : text.toCharArray())
            json.append(String.format(one < ' ' || one > '~' || one == '"' || one == '\\' ? "\\u%04x" : "%c", (int) one));
        return json.append('"').toString();
    }

    static String ask(HttpClient client, String method, String url) {
        HttpRequest.BodyPublisher body = method.equals("POST")
            ? HttpRequest.BodyPublishers.ofString("{}") : HttpRequest.BodyPublishers.noBody();
        HttpRequest request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(10)).method(method, body).build();
        try {
            return quoted(client.send(request, BodyHandlers.ofString(StandardCharsets.ISO_8859_1)).body());
        } catch (IOException | InterruptedException fault) {
            return "null";
        }
    }

    static void run(String[] parts) {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        String first = ask(client, "GET", parts[1]);
        System.out.println("[" + parts[0] + ", " + first + ", " + ask(client, "POST", parts[2]) + "]");
    }

    public static void main(String[] arguments) throws Exception {
        ExecutorService slots = Executors.newFixedThreadPool(16);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] parts = line.split(" ");
            slots.submit(() -> run(parts));
        }
        slots.shutdown();
        slots.awaitTermination(5, TimeUnit.MINUTES);
        System.exit(0); // clients' threads may still run
    }
}
