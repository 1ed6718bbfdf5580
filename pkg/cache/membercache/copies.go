package membercache

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/feed"
	"github.com/isthmus-dev/isthmus/pkg/cache/references"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

const managedSelector = cache.ManagedLabel + "=true"

// copies is the sink of a metadata feed of managed copies: all that is kept of
// them is for which template they stand.
type copies struct {
	cache   *Cache
	cluster cache.ClusterName
	gvk     schema.GroupVersionKind
	enc     cache.Encoding

	mu     sync.Mutex
	known  map[cache.Key]types.UID
	unseen map[cache.Key]types.UID
}

var _ feed.Sink = &copies{}

func newCopies(c *Cache, cluster cache.ClusterName, res cache.Resource) *copies {
	return &copies{
		cache: c, cluster: cluster, enc: res.Encoding,
		gvk:   res.GroupVersion().WithKind(res.Kind),
		known: map[cache.Key]types.UID{},
	}
}

// Put implements feed.Sink.
func (s *copies) Put(raw []byte) error {
	meta, err := wire.ParseMeta(s.enc, raw)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := cache.Key{Namespace: string([]byte(meta.Namespace)), Name: string([]byte(meta.Name))}
	uid := types.UID([]byte(meta.UID))
	delete(s.unseen, key)
	if old, ok := s.known[key]; ok && old != uid {
		s.cache.index.Unset(s.cluster, old, s.cache.cfg.Now.Now())
	}
	target, ok := references.Mark(s.gvk, &meta)
	if !ok {
		s.cache.index.Unset(s.cluster, uid, s.cache.cfg.Now.Now())
		delete(s.known, key)
		return nil
	}
	s.known[key] = uid
	s.cache.index.Set(s.cluster, uid, target, true)
	return nil
}

// Delete implements feed.Sink. An object that loses the label ends here too.
func (s *copies) Delete(raw []byte) error {
	meta, err := wire.ParseMeta(s.enc, raw)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.goneLocked(cache.Key{Namespace: meta.Namespace, Name: meta.Name}, types.UID(meta.UID))
	return nil
}

func (s *copies) goneLocked(key cache.Key, uid types.UID) {
	if s.known[key] == uid {
		delete(s.known, key)
	}
	s.cache.index.Unset(s.cluster, uid, s.cache.cfg.Now.Now())
}

// Begin implements feed.Sink.
func (s *copies) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unseen = make(map[cache.Key]types.UID, len(s.known))
	maps.Copy(s.unseen, s.known)
}

// End implements feed.Sink.
func (s *copies) End(string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, v := range s.unseen {
		s.goneLocked(k, v)
	}
	s.unseen = nil
}

// Abort implements feed.Sink.
func (s *copies) Abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unseen = nil
}

// Progress implements feed.Sink.
func (s *copies) Progress(string) {}

// Flush implements feed.Sink.
func (s *copies) Flush() {}

// Connected implements feed.Sink.
func (s *copies) Connected() {}

// Disconnected implements feed.Sink.
func (s *copies) Disconnected(error) {}
