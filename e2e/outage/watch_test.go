package outage

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// seenEvent is one event of a watch, with what all objects have.
type seenEvent struct {
	Type   string `json:"type"`
	Object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		// Of a Status, for events of type ERROR.
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"object"`
	at time.Time
}

func (e seenEvent) rv(t testing.TB) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(e.Object.Metadata.ResourceVersion, 10, 63)
	if err != nil {
		t.Fatalf("resourceVersion of %s %s: %v", e.Type, e.Object.Metadata.Name, err)
	}
	return n
}

// stream is an open watch.
type stream struct {
	headers time.Duration // until they came
	header  http.Header
	events  chan seenEvent // closed at its end
	stop    func()
}

// watch opens a watch; path has the query with watch=1.
func watch(ctx context.Context, config *rest.Config, path string) (*stream, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return watchBy(ctx, client, config, path)
}

// watchBy opens a watch with a client of the caller's.
func watchBy(ctx context.Context, client *http.Client, config *rest.Config, path string) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	started := time.Now()
	res, err := openBy(ctx, client, config, path) //nolint:bodyclose // closed with the watch
	if err != nil {
		cancel()
		return nil, err
	}
	s := &stream{headers: time.Since(started), header: res.Header, events: make(chan seenEvent, 1000), stop: cancel}
	if res.StatusCode != http.StatusOK {
		defer cancel()
		defer res.Body.Close() //nolint:errcheck // only read
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %d: %w", path, res.StatusCode, err)
		}
		return nil, &refused{code: res.StatusCode, body: string(body)}
	}
	go func() {
		defer close(s.events)
		defer res.Body.Close() //nolint:errcheck // only read
		decoder := json.NewDecoder(bufio.NewReader(res.Body))
		for {
			var e seenEvent
			if decoder.Decode(&e) != nil {
				return // the end of the stream, or stop
			}
			e.at = time.Now()
			select {
			case s.events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return s, nil
}

// refused is an answer other than 200 to a watch.
type refused struct {
	code int
	body string
}

func (e *refused) Error() string { return fmt.Sprintf("the watch is refused: %d %s", e.code, e.body) }

// mustWatch fails the test when the watch does not open; it ends with the test.
func mustWatch(t testing.TB, config *rest.Config, path string) *stream {
	t.Helper()
	s, err := watch(t.Context(), config, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

// await returns the first event that is wanted. The end of the stream and an
// ERROR fail the test.
func (s *stream) await(t testing.TB, limit time.Duration, what string, want func(seenEvent) bool) seenEvent {
	t.Helper()
	timeout := time.After(limit)
	for {
		select {
		case e, ok := <-s.events:
			if !ok {
				t.Fatalf("the watch ended while waiting for %s", what)
			}
			if e.Type == "ERROR" {
				t.Fatalf("the watch says %d %s while waiting for %s", e.Object.Code, e.Object.Message, what)
			}
			if want(e) {
				return e
			}
		case <-timeout:
			t.Fatalf("no event within %s: %s", limit, what)
		}
	}
}

func eventOf(kind, name string) func(seenEvent) bool {
	return func(e seenEvent) bool { return e.Type == kind && e.Object.Metadata.Name == name }
}

// initialEnd is the bookmark that ends the initial events of a WatchList.
func initialEnd(e seenEvent) bool {
	return e.Type == "BOOKMARK" && e.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

const watchListQuery = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

// versions reads the resourceVersions of a list: its own and those of its items.
func versions(t testing.TB, body []byte) (uint64, map[string]uint64) {
	t.Helper()
	var list struct {
		Metadata metav1.ListMeta `json:"metadata"`
		Items    []struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatalf("list: %v: %.200s", err, body)
	}
	rv, err := strconv.ParseUint(list.Metadata.ResourceVersion, 10, 63)
	if err != nil {
		t.Fatalf("resourceVersion of the list: %v", err)
	}
	items := map[string]uint64{}
	for _, item := range list.Items {
		n, err := strconv.ParseUint(item.Metadata.ResourceVersion, 10, 63)
		if err != nil {
			t.Fatalf("resourceVersion of %s: %v", item.Metadata.Name, err)
		}
		items[item.Metadata.Name] = n
	}
	return rv, items
}
