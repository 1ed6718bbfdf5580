// Package cache holds the contracts of the member cache: what a cached object
// is, how a reader asks for a moment in time, and which errors it may meet.
//
// Data walks one way:
//
//	member watch -> feed (bytes) -> wire (key, labels, RV) -> sequence (number)
//	             -> store (snapshot) and log (history) -> every reader
//
// The control plane is one more source: its dual objects and Events share the
// list and the resourceVersion space with the members' objects.
//
// Ownership of bytes: what Object.Raw gives is immutable from the moment the
// Object is published. Readers may keep it as long as they like and must not
// write to it.
package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// ClusterName names a source of objects: a joined member, or ControlPlane.
// Member names have no dots and at most 48 characters.
type ClusterName string

// ControlPlane is the source name of the embedded control plane.
const ControlPlane ClusterName = ""

// AllClusters stands, in a Gap, for sources that nobody knows of yet.
const AllClusters ClusterName = "*"

// Label and annotation keys that the endpoint adds to what it serves and takes
// off what is written.
const (
	// ClusterLabel names the member that owns the object.
	ClusterLabel = "isthmus.dev/cluster"
	// OriginalNameAnnotation holds the name in the member where it differs
	// from the name as served.
	OriginalNameAnnotation = "isthmus.dev/original-name"
)

// Marks that the federation engine puts on what it applies to a member.
const (
	// ManagedLabel marks a managed copy, value "true".
	ManagedLabel = "isthmus.dev/managed"
	// TemplateUIDAnnotation is the UID of the template in the control plane.
	TemplateUIDAnnotation = "isthmus.dev/template-uid"
	// TemplateAnnotation is the copy's own "GROUP/VERSION, KIND, NAMESPACE/NAME"
	// as written by the engine: "apps/v1/Deployment/default/web".
	// A mark that does not match its object is foreign.
	TemplateAnnotation = "isthmus.dev/template"
	// RevisionAnnotation is the revision stamp "NAME/UID" of the control
	// plane's ReplicaSet; the member's deployment controller copies it from
	// the Deployment to its ReplicaSets.
	RevisionAnnotation = "isthmus.dev/revision"
)

// Encoding is the form of the bytes of a resource.
type Encoding uint8

const (
	// Protobuf is the bare protobuf message of the versioned type, without
	// the "k8s\x00" envelope.
	Protobuf Encoding = iota
	// JSON is a complete JSON object with apiVersion and kind.
	JSON
)

// Resource describes one cached kind.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	Encoding   Encoding
	// FromControlPlane is set for kinds of which the control plane is a
	// source too (dual kinds, Events).
	FromControlPlane bool
}

// Key identifies an object as served.
type Key struct {
	Namespace, Name string
}

// Compare orders keys as LIST does: by namespace, then name.
func (k Key) Compare(o Key) int {
	if c := cmp.Compare(k.Namespace, o.Namespace); c != 0 {
		return c
	}
	return cmp.Compare(k.Name, o.Name)
}

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Object is one object as served. It is immutable.
type Object struct {
	Key        Key
	Cluster    ClusterName
	SourceName string    // metadata.name in the source
	UID        types.UID // as in the source
	RV         uint64    // sequenced; equals metadata.resourceVersion in the bytes
	SourceRV   uint64    // metadata.resourceVersion in the source
	Labels     labels.Labels
	Fields     fields.Fields // selectable fields as served, beyond metadata.name and metadata.namespace
	Body       Body          // the bytes as served, in the encoding of the resource
	Origin     *Origin       // references as in the source; nil when there are none
}

// Raw gives the bytes as served, unpacked where they are kept compressed. Nobody
// writes to them.
func (o *Object) Raw() []byte { return o.Body.Bytes() }

// Body holds the bytes of an object in whatever form they are kept.
type Body interface {
	// Bytes gives the bytes; they stay valid and are not written to.
	Bytes() []byte
	// Len is their number, known without unpacking them.
	Len() int
}

// Bytes is a Body that is kept as it is.
type Bytes []byte

// Bytes implements Body.
func (b Bytes) Bytes() []byte { return b }

// Len implements Body.
func (b Bytes) Len() int { return len(b) }

// Origin holds the references of an object as its source has them, from which
// the served ones are made anew when what they resolve to changes.
type Origin struct {
	Node   string // Pod spec.nodeName
	Owners []OwnerRef
	Others *OtherRefs // nil for most objects
}

// OtherRefs are the references that few objects have.
type OtherRefs struct {
	// Involved is an Event's involvedObject or a PersistentVolume's claimRef;
	// it has no name where there is none.
	Involved InvolvedRef
	// Lists holds the names in the lists of references of the kind, in the
	// order of its table of references; nil where there are none.
	Lists [][]string
}

// OwnerRef is one owner reference as the source has it.
type OwnerRef struct {
	APIVersion, Kind, Name string
	UID                    types.UID
	Controller             bool
}

// InvolvedRef is the one object that an object is about, as the source has it.
type InvolvedRef struct {
	APIVersion, Kind, Namespace, Name string
	UID                               types.UID
}

// EventType is the kind of a change.
type EventType uint8

// Kinds of changes.
const (
	Added EventType = iota
	Modified
	Deleted
)

// Event is one change of a collection. It is immutable but for its memo.
type Event struct {
	Type EventType
	// Object is the new state; for Deleted the last state carrying the
	// RV of the deletion, in its bytes too.
	Object *Object
	// Prev is the state before, nil for Added.
	Prev *Object
	RV   uint64
	// Time is when the event was sequenced.
	Time time.Time
	Memo Memo
}

// Match says which moment a reader accepts.
type Match uint8

const (
	// Latest is RV="": not older than any completed write.
	Latest Match = iota
	// Any is RV="0".
	Any
	// NotOlderThan is RV=n.
	NotOlderThan
	// Exact is RV=n with resourceVersionMatch=Exact, or a continue token.
	Exact
)

// Version is a moment in the life of a collection.
type Version struct {
	Match Match
	RV    uint64
}

// Snapshot is one consistent moment of a collection. It holds no lock and
// may be read as slowly as the reader likes.
type Snapshot interface {
	RV() uint64
	Len() int
	// Ascend calls fn for every object with key >= from, in key order, until
	// fn returns false.
	Ascend(from Key, fn func(*Object) bool)
}

// Watcher delivers the events of a collection in RV order.
type Watcher interface {
	// Next blocks until there is at least one event, and returns all that are
	// ready (bounded). It returns ErrExpired when the watcher fell behind the
	// history, ErrClosed when the cache shuts down, or ctx.Err().
	Next(ctx context.Context) ([]*Event, error)
	// Progress is the highest RV such that every event up to it has been
	// returned by Next: what a bookmark may say.
	Progress() uint64
}

// Collection is the merged view of one resource over all sources.
// Errors are the sentinels of this package, wrapped.
type Collection interface {
	Resource() Resource
	// Snapshot waits up to 3 s for an RV ahead of the log (ErrTooNew after
	// that), and answers ErrExpired where the history does not reach back.
	Snapshot(ctx context.Context, at Version) (Snapshot, error)
	// Get is Snapshot and look-up of one key, cheaply. ErrNotFound.
	Get(ctx context.Context, key Key, at Version) (*Object, error)
	// Watch delivers every event with RV > from. ErrExpired, ErrTooNew.
	Watch(ctx context.Context, from uint64) (Watcher, error)
	// ServedName is the name under which a source's object is, or would be, served.
	ServedName(cluster ClusterName, namespace, sourceName string) string
	// FindSource looks an object up by source coordinates.
	FindSource(cluster ClusterName, namespace, sourceName string) (*Object, bool)
	// Holder says which cluster serves or has reserved the bare name: an
	// object of that name exists, or existed within the reservation time, or
	// is being created (Reserve).
	Holder(key Key) (ClusterName, bool)
	// Reserve holds a bare name for a cluster while it is being created
	// there. ErrHeld when somebody else has it. release is idempotent.
	Reserve(key Key, cluster ClusterName) (release func(), err error)
	// Observe makes a completed write visible: it waits until the source's
	// feed has passed sourceRV (at most 1 s), else puts the given record in
	// itself, and returns the object as served (nil when it is gone).
	Observe(ctx context.Context, cluster ClusterName, namespace, sourceName string, sourceRV uint64, raw []byte) (*Object, error)
	// ObserveDeleted waits until the source's feed has seen the end of the
	// object with this UID (at most 1 s).
	ObserveDeleted(ctx context.Context, cluster ClusterName, namespace, sourceName string, uid types.UID) error
	// AwaitFresh asks every reachable source for its present revision and
	// waits until the feed has reached it (?consistency=strict). The error
	// names the sources that could not answer.
	AwaitFresh(ctx context.Context) error
	// Gaps lists the sources whose objects are missing or stale, sorted.
	Gaps() []Gap
	// Stats counts objects per source and bytes.
	Stats() Stats
}

// Stats describes the size of a collection.
type Stats struct {
	Objects map[ClusterName]int
	Bytes   int64
	Head    uint64 // RV of the last event
	Log     int    // events in the history
}

// GapKind says what is wrong with a source.
type GapKind uint8

const (
	// Stale: unreachable, the last known objects are served.
	Stale GapKind = iota
	// NeverSynced: never loaded since it joined; left out, with a warning.
	NeverSynced
	// NotLoaded: loaded once in its life, but not by this process: a LIST
	// must wait and then fail, since an omission reads as deletions.
	NotLoaded
)

// Gap is one source whose objects are not live.
type Gap struct {
	Cluster ClusterName
	Kind    GapKind
	Since   time.Time
	Reason  string
}

func (g Gap) String() string {
	if g.Cluster == AllClusters {
		return g.Reason
	}
	since := g.Since.UTC().Format(time.RFC3339)
	switch g.Kind {
	case Stale:
		return fmt.Sprintf("cluster %q unreachable since %s, showing its last known objects: %s", g.Cluster, since, g.Reason)
	case NotLoaded:
		return fmt.Sprintf("cluster %q not loaded since %s: %s", g.Cluster, since, g.Reason)
	case NeverSynced:
		return fmt.Sprintf("cluster %q never synced, its objects are missing: %s", g.Cluster, g.Reason)
	}
	return string(g.Cluster)
}

// Sentinels of the cache. They are translated to a Kubernetes Status only by
// the handler that answers a client.
var (
	ErrNotFound = errors.New("object not found")
	ErrExpired  = errors.New("resourceVersion is older than the history")
	ErrTooNew   = errors.New("resourceVersion is ahead of the log")
	ErrClosed   = errors.New("cache is closed")
	ErrHeld     = errors.New("name is held by another cluster")
	// ErrElsewhere says that another process may have acknowledged what is not
	// here.
	ErrElsewhere = errors.New("another gateway may number the events")
)

// NotLoadedError says which sources keep a LIST from being complete.
type NotLoadedError struct{ Gaps []Gap }

func (e *NotLoadedError) Error() string {
	parts := make([]string, len(e.Gaps))
	for i, g := range e.Gaps {
		parts[i] = g.String()
	}
	return "cache is not complete: " + strings.Join(parts, "; ")
}

// Cache is the set of collections.
type Cache interface {
	// Collection finds the collection that serves a resource; aliases such
	// as events.k8s.io/v1 events are the caller's to resolve.
	Collection(gvr schema.GroupVersionResource) (Collection, bool)
	Collections() []Collection
	// AwaitLoaded waits until no source is NotLoaded for the collection, or
	// returns a *NotLoadedError when ctx ends.
	AwaitLoaded(ctx context.Context, gvr schema.GroupVersionResource) error
}
