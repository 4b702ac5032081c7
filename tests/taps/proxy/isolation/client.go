// Reads lines of "NUMBER FIRST-URL SECOND-URL". Each case has a kept connection of its own. Prints a JSON line for each.
package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

func ask(client *http.Client, method, url string) any {
	request, _ := http.NewRequest(method, url, nil)
	if method == "POST" {
		request, _ = http.NewRequest(method, url, strings.NewReader("{}"))
	}
	response, err := client.Do(request)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil
	}
	return string(body)
}

func main() {
	var all sync.WaitGroup
	var printing sync.Mutex
	slots := make(chan bool, 16)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		parts := strings.Fields(lines.Text())
		all.Add(1)
		slots <- true
		go func() {
			defer func() { <-slots; all.Done() }()
			transport := &http.Transport{MaxConnsPerHost: 1}
			client := &http.Client{Timeout: 10 * time.Second, Transport: transport}
			number, _ := strconv.Atoi(parts[0])
			found := []any{number, ask(client, "GET", parts[1]), ask(client, "POST", parts[2])}
			transport.CloseIdleConnections()
			line, _ := json.Marshal(found)
			printing.Lock()
			defer printing.Unlock()
			os.Stdout.Write(append(line, '\n'))
		}()
	}
	all.Wait()
}
