package gateway

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWatchOverWebSocket(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 2)
	for _, accept := range []string{"application/json", protobuf} {
		config, err := websocket.NewConfig("ws"+strings.TrimPrefix(e.URL, "http")+"/api/v1/pods?watch=1"+watchList, e.URL)
		if err != nil {
			t.Fatal(err)
		}
		config.Header.Set("Accept", accept)
		conn, err := websocket.DialConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		next := func() string {
			var b []byte
			if err := websocket.Message.Receive(conn, &b); err != nil {
				t.Fatal(err)
			}
			if accept == protobuf {
				var ev metav1.WatchEvent
				if err := ev.Unmarshal(b); err != nil || !strings.HasPrefix(string(ev.Object.Raw), "k8s\x00") {
					t.Fatalf("%v: %x", err, b)
				}
				return ev.Type
			}
			var ev watchEvent
			if err := json.Unmarshal(b, &ev); err != nil {
				t.Fatalf("%v: %s", err, b)
			}
			return ev.Type
		}
		for _, want := range []string{"ADDED", "ADDED", "BOOKMARK"} {
			if got := next(); got != want {
				t.Fatalf("%s: got %s, want %s", accept, got, want)
			}
		}
		e.pods.put(t, "m1", pod("default", "m1-000"), podFields)
		if got := next(); got != "MODIFIED" {
			t.Fatalf("got %s", got)
		}
		conn.Close()
	}
}
