package cachetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// Widgets is the only resource of which a Member has objects.
var Widgets = cache.Resource{
	GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
	Kind:                 "Widget", Namespaced: true, Encoding: cache.JSON,
}

// Member is an API server to play with: it has one resource, streams initial
// events and watches it, and knows its own identity. Of the kinds of the core
// group it has no objects. It is safe for concurrent use.
type Member struct {
	mu      sync.Mutex
	uid     types.UID
	rv      int
	objects map[string]widget
	events  []widget
	changed chan struct{}
	broken  bool
}

type widget struct {
	name, uid string
	rv        int
	deleted   bool
}

// NewMember makes an empty member whose kube-system namespace has a UID.
func NewMember(uid types.UID) *Member {
	return &Member{uid: uid, rv: 1, objects: map[string]widget{}, changed: make(chan struct{})}
}

// Set creates or changes an object of namespace "d".
func (m *Member) Set(name string) {
	m.change(func() {
		w, ok := m.objects[name]
		if !ok {
			w = widget{name: name, uid: fmt.Sprintf("%s-%s-%d", m.uid, name, m.rv)}
		}
		w.rv = m.rv
		m.objects[name] = w
		m.events = append(m.events, w)
	})
}

// Remove deletes an object, if it is there.
func (m *Member) Remove(name string) {
	m.change(func() {
		w, ok := m.objects[name]
		if !ok {
			return
		}
		delete(m.objects, name)
		w.rv, w.deleted = m.rv, true
		m.events = append(m.events, w)
	})
}

// Tamper changes what the member has behind the back of its watches: the version
// of one object, the end of another, and a new one. Either name may be empty.
func (m *Member) Tamper(changed, removed, added string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w, ok := m.objects[changed]; ok {
		w.rv = m.rv
		m.objects[changed] = w
	}
	delete(m.objects, removed)
	if added != "" {
		m.objects[added] = widget{name: added, uid: added, rv: 1}
	}
}

// Break makes every request fail, and ends those that are open, until Heal.
func (m *Member) Break(broken bool) {
	m.change(func() { m.broken = broken })
}

func (m *Member) change(fn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rv++
	fn()
	close(m.changed)
	m.changed = make(chan struct{})
}

// ServeHTTP implements http.Handler.
func (m *Member) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	broken := m.broken
	m.mu.Unlock()
	q := r.URL.Query()
	switch {
	case broken:
		http.Error(w, "broken", http.StatusInternalServerError)
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		reply(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":%q}}`, m.uid)
	case r.URL.Path == "/apis":
		reply(w, `{"kind":"APIGroupList","groups":[]}`)
	case strings.HasPrefix(r.URL.Path, "/api/v1/"):
		m.none(w, r)
	case r.URL.Path != "/apis/example.com/v1/widgets":
		http.NotFound(w, r)
	case q.Get("watch") != "true":
		m.list(w)
	case q.Get("sendInitialEvents") == "true":
		m.watch(w, r, -1)
	default:
		from, err := strconv.Atoi(q.Get("resourceVersion"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		m.watch(w, r, from)
	}
}

// none answers for a kind without objects: an empty list, and a silent watch.
func (m *Member) none(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch {
	case q.Get("sendInitialEvents") == "true":
		http.Error(w, "initial events are not streamed", http.StatusBadRequest)
		return
	case q.Get("watch") != "true":
		list := metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		body, err := encodeList(&list)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", protobufType)
		_, _ = w.Write(body)
		return
	}
	w.Header().Set("Content-Type", protobufType)
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		m.mu.Lock()
		changed, broken := m.changed, m.broken
		m.mu.Unlock()
		if broken {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

const protobufType = "application/vnd.kubernetes.protobuf"

// encodeList gives a list in the form in which API servers send protobuf.
func encodeList(list *metav1.PartialObjectMetadataList) ([]byte, error) {
	raw, err := list.Marshal()
	if err != nil {
		return nil, err
	}
	envelope := runtime.Unknown{
		TypeMeta: runtime.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "PartialObjectMetadataList"}, Raw: raw,
	}
	b, err := envelope.Marshal()
	return append([]byte("k8s\x00"), b...), err
}

func reply(w http.ResponseWriter, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, format, args...)
}

func (m *Member) sorted() []widget {
	all := make([]widget, 0, len(m.objects))
	for _, o := range m.objects {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b widget) int { return strings.Compare(a.name, b.name) })
	return all
}

func (m *Member) list(w http.ResponseWriter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := []string{}
	for _, o := range m.sorted() {
		items = append(items, o.json())
	}
	reply(w, `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`, m.rv, strings.Join(items, ","))
}

func (o widget) json() string {
	return fmt.Sprintf(`{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"namespace":"d","name":%q,"uid":%q,"resourceVersion":"%d"},"spec":{"n":%d}}`, o.name, o.uid, o.rv, o.rv)
}

// watch streams from an RV, or from a complete state where that is negative.
func (m *Member) watch(w http.ResponseWriter, r *http.Request, from int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	encoder := json.NewEncoder(w)
	send := func(typ, object string) {
		// A reader that has gone ends the loop by its context.
		_ = encoder.Encode(map[string]any{"type": typ, "object": json.RawMessage(object)})
	}
	m.mu.Lock()
	if from < 0 {
		for _, o := range m.sorted() {
			send("ADDED", o.json())
		}
		from = m.rv
		send("BOOKMARK", fmt.Sprintf(`{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}`, from))
	}
	m.mu.Unlock()
	for r.Context().Err() == nil {
		m.mu.Lock()
		for _, o := range m.events {
			if o.rv <= from {
				continue
			}
			typ := "MODIFIED"
			if o.deleted {
				typ = "DELETED"
			}
			send(typ, o.json())
			from = o.rv
		}
		changed, broken := m.changed, m.broken
		m.mu.Unlock()
		w.(http.Flusher).Flush()
		if broken {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
		}
	}
}
