package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
	"github.com/isthmus-dev/isthmus/e2e/soak/stream"
)

const clusterLabel = "isthmus.dev/cluster"

// served is what is read of an object that is served.
type served struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Phase string `json:"phase"`
	} `json:"status"`
	// Of a Status in an event of type ERROR.
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// object that a validator takes; names are those that the cluster has.
func (s served) object() (stream.Object, error) {
	m := s.Metadata
	version, err := strconv.ParseUint(m.ResourceVersion, 10, 63)
	if err != nil {
		return stream.Object{}, fmt.Errorf("resourceVersion of %s: %w", m.Name, err)
	}
	return stream.Object{
		Namespace: m.Namespace, Name: m.Name, UID: string(m.UID), Version: version, N: s.number(),
		Content: s.content(m.Labels[clusterLabel]),
	}, nil
}

func (s served) number() int64 {
	n, err := strconv.ParseInt(s.Metadata.Annotations[numbered], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// content is what is compared between a cluster and what is served of it.
func (s served) content(cluster string) string {
	name := s.Metadata.Name
	if original := s.Metadata.Annotations["isthmus.dev/original-name"]; original != "" {
		name = original
	}
	return fmt.Sprintf("%s in %q: n %d, tier %s, %s, deleting %t", name, cluster, s.number(), s.Metadata.Labels["tier"], s.Status.Phase, s.Metadata.DeletionTimestamp != nil)
}

// follower is an informer that holds its stream to its promises.
type follower struct {
	*stream.Watcher
	client    *http.Client
	url       string // with ? at the end, or a selector
	watchList bool
	rand      *rand.Rand
	started   func() // told once, when the whole state is known

	mu     sync.Mutex // guards Watcher
	errors []string   // answers that no informer should get
	lost   int        // connections that could not be made, or broke
}

func newFollower(name string, config *rest.Config, client *http.Client, path string, watchList bool, seed uint64) *follower {
	return &follower{
		Watcher: stream.New(name), client: client, url: strings.TrimSuffix(config.Host, "/") + path,
		watchList: watchList, rand: rand.New(rand.NewPCG(seed, 7)),
	}
}

func (f *follower) wrong(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.errors) < 20 {
		f.errors = append(f.errors, fmt.Sprintf(format, args...))
	}
}

// run lists once and then watches, each watch for some seconds.
func (f *follower) run(ctx context.Context, began *sync.WaitGroup) {
	f.started = sync.OnceFunc(began.Done)
	defer f.started()
	for ctx.Err() == nil && !f.begin(ctx) {
		time.Sleep(500 * time.Millisecond)
	}
	for ctx.Err() == nil {
		f.mu.Lock()
		from := f.Resume()
		f.mu.Unlock()
		if err := f.watch(ctx, fmt.Sprintf("resourceVersion=%d", from), nil); err != nil && ctx.Err() == nil {
			f.mu.Lock()
			f.lost++
			f.mu.Unlock()
			time.Sleep(200 * time.Millisecond)
		}
		f.mu.Lock()
		f.Ended()
		f.mu.Unlock()
	}
}

// begin reads the whole state.
func (f *follower) begin(ctx context.Context) bool {
	if f.watchList {
		initial := &[]stream.Object{}
		err := f.watch(ctx, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan", initial)
		return err == nil && f.Lists > 0
	}
	body, err := f.get(ctx, f.url)
	if err != nil {
		return false
	}
	defer body.Close() //nolint:errcheck // only read
	var list struct {
		Metadata metav1.ListMeta `json:"metadata"`
		Items    []served        `json:"items"`
	}
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return false
	}
	version, err := strconv.ParseUint(list.Metadata.ResourceVersion, 10, 63)
	if err != nil {
		f.wrong("the list has RV %q", list.Metadata.ResourceVersion)
		return false
	}
	var objects []stream.Object
	for _, item := range list.Items {
		o, err := item.object()
		if err != nil {
			f.wrong("%v", err)
		}
		objects = append(objects, o)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Listed(version, objects)
	f.started()
	return true
}

func (f *follower) get(ctx context.Context, url string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	resp, err := f.client.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close() //nolint:errcheck // only read
		text, err := io.ReadAll(io.LimitReader(resp.Body, 500))
		f.wrong("GET %s: %d %s (%v)", url, resp.StatusCode, text, err)
		return nil, fmt.Errorf("answered %d", resp.StatusCode)
	}
	return resp.Body, nil
}

// watch reads events until the stream ends. Initial events are gathered until
// the bookmark that ends them.
func (f *follower) watch(ctx context.Context, how string, initial *[]stream.Object) error {
	body, err := f.get(ctx, fmt.Sprintf("%s&watch=1&allowWatchBookmarks=true&timeoutSeconds=%d&%s", f.url, 10+f.rand.IntN(30), how))
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // only read
	for decoder := json.NewDecoder(bufio.NewReader(body)); ; {
		var e struct {
			Type   string `json:"type"`
			Object served `json:"object"`
		}
		if err := decoder.Decode(&e); err != nil {
			return nil //nolint:nilerr // the end of the stream: it is resumed
		}
		if e.Type == "ERROR" {
			f.wrong("a watch of %s is told %d %s", how, e.Object.Code, e.Object.Message)
			return fmt.Errorf("told %d", e.Object.Code)
		}
		o, err := e.Object.object()
		if err != nil {
			f.wrong("%s: %v", e.Type, err)
			continue
		}
		f.take(e.Type, o, e.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true", &initial)
	}
}

func (f *follower) take(kind string, o stream.Object, ends bool, initial **[]stream.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case kind == "BOOKMARK" && *initial != nil && ends:
		f.Listed(o.Version, **initial)
		*initial = nil
		f.started()
	case kind == "BOOKMARK":
		f.Bookmark(o.Version)
	case *initial != nil:
		**initial = append(**initial, o)
	default:
		f.Event(stream.Type(kind), o)
	}
}

// itemsOf reads the objects of a list.
func itemsOf(a labtest.Answer) ([]served, error) {
	var list struct {
		Items []served `json:"items"`
	}
	if a.Code != http.StatusOK {
		return nil, fmt.Errorf("a list answers %s", a)
	}
	err := json.Unmarshal(a.Body, &list)
	return list.Items, err
}
