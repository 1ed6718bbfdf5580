package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/federation/prune"
)

var widgetGVK = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

// schemaServer publishes the schemas of one kind, as an API server does.
type schemaServer struct {
	*httptest.Server
	mu     sync.Mutex
	fields []string
	status int
	index  map[string]string // replaces the real index
	asked  map[string]int
}

func newSchemaServer(t *testing.T, fields ...string) *schemaServer {
	t.Helper()
	s := &schemaServer{fields: fields, asked: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *schemaServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.URL.Path]++
	if s.status != 0 {
		http.Error(w, "no", s.status)
		return
	}
	hash := strings.Join(s.fields, "-")
	if r.URL.Path == "/openapi/v3" {
		index := s.index
		if index == nil {
			index = map[string]string{"apis/example.com/v1": "/openapi/v3/apis/example.com/v1?hash=" + hash}
		}
		paths := map[string]any{}
		for name, url := range index {
			paths[name] = map[string]string{"serverRelativeURL": url}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"paths": paths})
		return
	}
	if r.URL.Path != "/openapi/v3/apis/example.com/v1" || r.URL.Query().Get("hash") != hash {
		http.NotFound(w, r)
		return
	}
	properties := map[string]any{}
	for _, f := range s.fields {
		properties[f] = map[string]any{"type": "string"}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"components": map[string]any{"schemas": map[string]any{"com.example.v1.Widget": map[string]any{
		"type":                            "object",
		"properties":                      map[string]any{"spec": map[string]any{"type": "object", "properties": properties}},
		"x-kubernetes-group-version-kind": []any{map[string]any{"group": "example.com", "version": "v1", "kind": "Widget"}},
	}}}})
}

func (s *schemaServer) schemas(t *testing.T, store *schemaStore) *schemas {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: s.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return newSchemas(store, client.RESTClient())
}

func droppedBy(n *prune.Node) []string {
	return prune.Prune(map[string]any{"spec": map[string]any{"a": "1", "b": "1"}}, n)
}

func TestSchemasAreReadOnceAndShared(t *testing.T) {
	store := newSchemaStore()
	server, twin := newSchemaServer(t, "a"), newSchemaServer(t, "a")
	one, two := server.schemas(t, store), twin.schemas(t, store)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := droppedBy(one.of(t.Context(), widgetGVK)); len(got) != 1 || got[0] != "spec.b" {
				t.Errorf("dropped %v", got)
			}
		})
	}
	wg.Wait()
	if n := server.asked["/openapi/v3/apis/example.com/v1"]; n != 1 || server.asked["/openapi/v3"] != 1 {
		t.Errorf("asked %v", server.asked)
	}
	if one.of(t.Context(), widgetGVK) != two.of(t.Context(), widgetGVK) || len(store.documents) != 1 {
		t.Error("equal documents are not shared")
	}
}

func TestSchemasFollowTheMember(t *testing.T) {
	server := newSchemaServer(t, "a")
	s := server.schemas(t, newSchemaStore())
	if got := droppedBy(s.of(t.Context(), widgetGVK)); len(got) != 1 {
		t.Fatal(got)
	}
	refresh := func() []schema.GroupVersionKind {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.refreshLocked(t.Context())
	}
	if changed := refresh(); len(changed) != 0 {
		t.Errorf("nothing has changed: %v", changed)
	}
	server.mu.Lock()
	server.fields = []string{"a", "b"}
	server.mu.Unlock()
	if changed := refresh(); len(changed) != 1 || changed[0] != widgetGVK {
		t.Errorf("changed %v", changed)
	}
	if got := droppedBy(s.of(t.Context(), widgetGVK)); len(got) != 0 {
		t.Errorf("dropped %v", got)
	}
}

// Without an answer that can be used nothing is pruned, and the member is not
// asked again for every object.
func TestSchemasThatCannotBeRead(t *testing.T) {
	for name, set := range map[string]func(*schemaServer){
		"no OpenAPI":    func(s *schemaServer) { s.status = http.StatusNotFound },
		"forbidden":     func(s *schemaServer) { s.status = http.StatusForbidden },
		"broken":        func(s *schemaServer) { s.status = http.StatusInternalServerError },
		"not described": func(s *schemaServer) { s.index = map[string]string{} },
		"an address of no schema": func(s *schemaServer) {
			s.index = map[string]string{"apis/example.com/v1": "/api/v1/secrets?hash=x"}
		},
	} {
		server := newSchemaServer(t, "a")
		set(server)
		s := server.schemas(t, newSchemaStore())
		for range 20 {
			if n := s.of(t.Context(), widgetGVK); n != nil || droppedBy(n) != nil {
				t.Fatalf("%s: %v", name, n)
			}
		}
		if server.asked["/openapi/v3"] > 2 || server.asked["/api/v1/secrets"] > 0 {
			t.Errorf("%s: asked %v", name, server.asked)
		}
		// It comes to its senses.
		server.mu.Lock()
		server.status, server.index = 0, nil
		server.mu.Unlock()
		s.asked = time.Now().Add(-time.Minute)
		if name == "an address of no schema" {
			s.outdated(t.Context())
			clear(s.failed)
		}
		if got := droppedBy(s.of(t.Context(), widgetGVK)); len(got) != 1 {
			t.Errorf("%s: afterwards dropped %v", name, got)
		}
	}
}

func TestUnknownField(t *testing.T) {
	if !unknownField(fmt.Errorf("failed to create typed patch object: .spec.x: %w", errors.New("field not declared in schema"))) || unknownField(errHeld) {
		t.Error("not recognised")
	}
}
