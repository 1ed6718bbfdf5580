package cache

import "sync/atomic"

// Pack is some neighbouring objects that are kept together and never change.
// What is derived of all of them at once can be kept under its ID.
type Pack interface {
	ID() *PackID
	Len() int
	// Raw is the number of bytes of all objects.
	Raw() int
	// Objects reads all objects, in key order.
	Objects() []*Object
	// Matching reads the objects for which match answers true; match does not
	// keep what it is given.
	Matching(match func(*Object) bool) []*Object
	// Mentions answers false only where no object has, for each of the lists,
	// one of its texts as its name, or as the key or value of a label
	// or the value of a field.
	Mentions(all [][]string) bool
	// Namespace is the one that all objects are in; ok is false where they
	// are in several.
	Namespace() (namespace string, ok bool)
	// Framed is the number of bytes of all objects as items of a protobuf
	// list, and FramedMetadata as items of which only the metadata is left.
	Framed() int
	FramedMetadata() (int, error)
	// AppendItems appends all objects, or of each its metadata alone, as items
	// of a protobuf list.
	AppendItems(dst []byte, metadata bool) ([]byte, error)
}

// PackID outlives its Pack: who holds it does not hold the objects.
type PackID struct{ retired atomic.Bool }

// Retire says that the pack has been replaced: only readers of older moments
// still see it.
func (id *PackID) Retire() { id.retired.Store(true) }

// Retired says whether the pack has been replaced.
func (id *PackID) Retired() bool { return id.retired.Load() }

// Run is some neighbouring objects of a Snapshot: a whole pack, or single ones.
type Run struct {
	Pack    Pack // nil for single objects
	Objects []*Object
}

// Len is the number of objects of a run.
func (r Run) Len() int {
	if r.Pack != nil {
		return r.Pack.Len()
	}
	return len(r.Objects)
}

// All gives the objects of a run.
func (r Run) All() []*Object {
	if r.Pack != nil {
		return r.Pack.Objects()
	}
	return r.Objects
}

// Runs is implemented by a Snapshot that keeps its objects in packs.
type Runs interface {
	// AscendRuns calls fn with the objects with key >= from, in key order,
	// until fn returns false. A pack that is given as a whole has not been
	// read for it.
	AscendRuns(from Key, fn func(Run) bool)
}
