package engine

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/prune"
)

const (
	// schemaRefresh is how often a member is asked whether its schemas have
	// changed: one small document.
	schemaRefresh = time.Minute
	// schemaSoon is the least time between two questions that a failure or a
	// kind that is not described yet asks for.
	schemaSoon = 5 * time.Second
	// largestSchema bounds what a member can make us read.
	largestSchema = 32 << 20
	// mostDocuments bounds what members that change their schemas all the time
	// can make us keep.
	mostDocuments = 512
	// shownDropped bounds how many fields are named.
	shownDropped = 20
)

// schemaStore holds the trees of all members: documents with equal content are
// kept once, as members of one version are equal.
type schemaStore struct {
	// reading bounds how many documents are in memory at once.
	reading chan struct{}

	mu        sync.Mutex
	documents map[[sha256.Size]byte]*prune.Document
}

func newSchemaStore() *schemaStore {
	return &schemaStore{reading: make(chan struct{}, 2), documents: map[[sha256.Size]byte]*prune.Document{}}
}

// tree adds a kind of a document that has been read.
func (s *schemaStore) tree(raw []byte, gvk schema.GroupVersionKind) (*prune.Node, error) {
	sum := sha256.Sum256(raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.documents[sum]
	if d == nil {
		d = prune.NewDocument()
	}
	if n := d.Kind(gvk); n != nil {
		return n, nil
	}
	if err := d.Add(raw, gvk); err != nil {
		return nil, err
	}
	if len(s.documents) >= mostDocuments {
		clear(s.documents) // trees that are in use stay with their members
	}
	s.documents[sum] = d
	return d.Kind(gvk), nil
}

// schemas is what a member says about the kinds that are written to it. A member
// that says nothing is written to without pruning.
type schemas struct {
	store  *schemaStore
	client rest.Interface

	// mu is held while the member is asked: those who need the same answer wait.
	mu    sync.Mutex
	index map[string]string // "apis/apps/v1" -> where its document is, with its hash
	asked time.Time
	known map[schema.GroupVersionKind]knownTree
	// failed is when a document could not be read, so that not every write tries.
	failed map[schema.GroupVersionKind]time.Time
}

type knownTree struct {
	address string
	tree    *prune.Node // nil: not described
}

func newSchemas(store *schemaStore, client rest.Interface) *schemas {
	return &schemas{store: store, client: client, known: map[schema.GroupVersionKind]knownTree{}, failed: map[schema.GroupVersionKind]time.Time{}}
}

// schemasOf prepares the schemas of a member.
func (e *Engine) schemasOf(ctx context.Context, c Member) *schemas {
	client, err := discovery.NewDiscoveryClientForConfig(applyConfig(c.Apply))
	if err != nil {
		klog.FromContext(ctx).Error(err, "The member's schemas cannot be read")
		return nil
	}
	return newSchemas(e.schemas, client.RESTClient())
}

// unknownField: the member refuses a field because of its schema.
func unknownField(err error) bool {
	return strings.Contains(err.Error(), "field not declared in schema") || strings.Contains(err.Error(), "unknown field")
}

// of returns the tree of a kind, nil when the member does not describe it.
func (s *schemas) of(ctx context.Context, gvk schema.GroupVersionKind) *prune.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.known[gvk]; ok && k.tree != nil {
		return k.tree
	}
	// Once there is an index, watchSchemas keeps it up to date.
	if s.index[path(gvk)] == "" && (s.asked.IsZero() || time.Since(s.asked) > schemaSoon) {
		s.refreshLocked(ctx)
	}
	address := s.index[path(gvk)]
	if k, ok := s.known[gvk]; address == "" || ok && k.address == address {
		return nil
	}
	if time.Since(s.failed[gvk]) < schemaSoon {
		return nil
	}
	tree, err := s.read(ctx, address, gvk)
	if err != nil && !errors.Is(err, prune.ErrUnknownKind) {
		klog.FromContext(ctx).V(1).Info("A schema cannot be read, nothing is pruned", "kind", gvk, "err", err)
		s.failed[gvk] = time.Now()
		return nil
	}
	delete(s.failed, gvk)
	s.known[gvk] = knownTree{address: address, tree: tree}
	return tree
}

// path is the name of a group version in the index.
func path(gvk schema.GroupVersionKind) string {
	if gvk.Group == "" {
		return "api/" + gvk.Version
	}
	return "apis/" + gvk.Group + "/" + gvk.Version
}

// refreshLocked asks for the index; it returns the kinds whose documents have
// changed.
func (s *schemas) refreshLocked(ctx context.Context) []schema.GroupVersionKind {
	s.asked = time.Now()
	raw, err := s.get(ctx, "/openapi/v3")
	if err != nil {
		klog.FromContext(ctx).V(1).Info("The member's schemas cannot be listed", "err", err)
		return nil
	}
	var doc struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		klog.FromContext(ctx).V(1).Info("The member's schemas cannot be listed", "err", err)
		return nil
	}
	s.index = make(map[string]string, len(doc.Paths))
	for name, p := range doc.Paths {
		s.index[name] = p.ServerRelativeURL
	}
	var changed []schema.GroupVersionKind
	for gvk, k := range s.known {
		if s.index[path(gvk)] != k.address {
			delete(s.known, gvk)
			changed = append(changed, gvk)
		}
	}
	return changed
}

// outdated has the index asked for again: the member has refused a field that it
// was believed to know.
func (s *schemas) outdated(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.asked) > schemaSoon {
		s.refreshLocked(ctx)
	}
}

// peek returns the tree of a kind as it is known, without asking; ok is false
// while the member is being asked.
func (s *schemas) peek(gvk schema.GroupVersionKind) (tree *prune.Node, ok bool) {
	if !s.mu.TryLock() {
		return nil, false
	}
	defer s.mu.Unlock()
	return s.known[gvk].tree, true
}

func (s *schemas) read(ctx context.Context, address string, gvk schema.GroupVersionKind) (*prune.Node, error) {
	select {
	case s.store.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.store.reading }()
	raw, err := s.get(ctx, address)
	if err != nil {
		return nil, err
	}
	return s.store.tree(raw, gvk)
}

var errTooLarge = errors.New("the document is too large")

// get reads a document. The address comes from the member, so only its path and
// query count.
func (s *schemas) get(ctx context.Context, address string) ([]byte, error) {
	where, query, _ := strings.Cut(address, "?")
	if !strings.HasPrefix(where, "/openapi/v3") {
		return nil, fmt.Errorf("%q is no address of a schema", address)
	}
	req := s.client.Get().AbsPath(where).SetHeader("Accept", "application/json")
	if hash, ok := strings.CutPrefix(query, "hash="); ok {
		req = req.Param("hash", hash)
	}
	body, err := req.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	raw, err := io.ReadAll(io.LimitReader(body, largestSchema+1))
	if err == nil && len(raw) > largestSchema {
		err = errTooLarge
	}
	return raw, err
}

// watchSchemas asks now and then whether the member's schemas have changed, and
// has what was written by the former ones looked at again.
func (m *member) watchSchemas(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(schemaRefresh + rand.N(schemaRefresh/4)): //nolint:gosec // spreads requests
		}
		if !m.info().Ready {
			continue
		}
		reqCtx, cancel := context.WithTimeout(ctx, m.engine.cfg.RequestTimeout)
		m.schemas.mu.Lock()
		var changed []schema.GroupVersionKind
		if len(m.schemas.known) > 0 {
			changed = m.schemas.refreshLocked(reqCtx)
		}
		m.schemas.mu.Unlock()
		cancel()
		for _, gvk := range changed {
			m.requeueKind(gvk)
		}
	}
}

// requeueKind looks at all templates of a kind that this member has to do with.
func (m *member) requeueKind(gvk schema.GroupVersionKind) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for key := range m.applied {
		if key.GroupVersionKind == gvk {
			m.queue.AddBacklog(key)
		}
	}
}

// fit takes out of what is said to the member what it does not know.
func (m *member) fit(ctx context.Context, key marks.Key, t *template, r *rendered) error {
	if m.schemas == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.engine.cfg.RequestTimeout)
	defer cancel()
	fields := prune.Prune(r.object.Object, m.schemas.of(ctx, key.GroupVersionKind))
	if len(fields) > 0 {
		hash, err := appliedHash(r.object.Object)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		r.hash = hash
	}
	m.tellDropped(key, t, prune.Describe(fields, shownDropped))
	return nil
}
