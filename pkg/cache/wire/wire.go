// Package wire finds, reads and splices metadata in the bytes of objects. It
// is the only place of the cache where bytes change.
//
//	watch body -> Frames (one object's bytes) -> ParseMeta, Text, Fields
//	           -> Rewrite (name, resourceVersion, labels, references) -> bytes
//
// Protobuf is handled as the bare message of a top-level kind, whose field 1 is
// always its ObjectMeta; JSON as one complete object. Whatever is not named by
// an Edit survives byte for byte, unknown fields included.
//
// Input is hostile: every function answers ErrMalformed where it cannot read,
// and none allocates more than a small multiple of what it was given.
package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// ErrMalformed is wrapped by every error about bytes that cannot be read.
var ErrMalformed = errors.New("malformed object")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Pair is one entry of a string map.
type Pair struct{ Key, Value string }

// Meta is what the cache reads of an object's metadata. Its strings alias the
// bytes they were read from: clone or intern what outlives them.
type Meta struct {
	Namespace, Name, UID, ResourceVersion string

	Generation int64
	Deleting   bool // metadata.deletionTimestamp is set
	// Labels and Annotations are sorted by key, and keys are unique.
	Labels      []Pair
	Annotations []Pair
	Owners      []cache.OwnerRef
}

// Label returns the value of a label.
func (m *Meta) Label(key string) (string, bool) { return lookup(m.Labels, key) }

// Annotation returns the value of an annotation.
func (m *Meta) Annotation(key string) (string, bool) { return lookup(m.Annotations, key) }

func lookup(pairs []Pair, key string) (string, bool) {
	i, ok := slices.BinarySearchFunc(pairs, key, func(p Pair, k string) int { return strings.Compare(p.Key, k) })
	if !ok {
		return "", false
	}
	return pairs[i].Value, true
}

// ParseMeta reads the metadata of an object.
func ParseMeta(enc cache.Encoding, raw []byte) (Meta, error) {
	if enc == cache.JSON {
		return parseMetaJSON(raw)
	}
	return parseMetaProto(raw)
}

// OwnerEdit replaces name and uid of the owner reference at an index.
type OwnerEdit struct {
	Index     int
	Name, UID string
}

// TextEdit replaces the string at a path where it is set and not empty.
type TextEdit struct {
	Path  Path
	Value string
}

// Edit lists what Rewrite changes. The zero Edit changes nothing.
type Edit struct {
	Name              string // empty keeps it
	ResourceVersion   string // empty keeps it
	SetLabels         []Pair
	DeleteLabels      []string
	SetAnnotations    []Pair
	DeleteAnnotations []string
	Owners            []OwnerEdit
	Texts             []TextEdit
	Lists             []ListEdit
}

// Rewrite returns a copy of raw with the edit applied. The result shares no
// memory with raw, and equal input gives equal bytes.
func Rewrite(enc cache.Encoding, raw []byte, edit Edit) ([]byte, error) {
	if enc == cache.JSON {
		return rewriteJSON(raw, edit)
	}
	return rewriteProto(raw, edit)
}

// Path leads to a field of an object in both encodings.
type Path struct {
	Proto []int32
	JSON  []string
}

// Text reads the string at a path. A field that is not there is "".
func Text(enc cache.Encoding, raw []byte, p Path) (string, error) {
	if enc == cache.JSON {
		return textJSON(raw, p.JSON)
	}
	return textProto(raw, p.Proto)
}

// Paths of fields that the cache reads, or that hold the name or uid of another
// object.
var (
	ResourceVersion         = Path{[]int32{1, 6}, []string{"metadata", "resourceVersion"}}
	PodNodeName             = Path{[]int32{2, 10}, []string{"spec", "nodeName"}}
	PodNominatedNodeName    = Path{[]int32{3, 11}, []string{"status", "nominatedNodeName"}}
	EventInvolvedKind       = Path{[]int32{2, 1}, []string{"involvedObject", "kind"}}
	EventInvolvedNamespace  = Path{[]int32{2, 2}, []string{"involvedObject", "namespace"}}
	EventInvolvedName       = Path{[]int32{2, 3}, []string{"involvedObject", "name"}}
	EventInvolvedUID        = Path{[]int32{2, 4}, []string{"involvedObject", "uid"}}
	EventInvolvedAPIVersion = Path{[]int32{2, 5}, []string{"involvedObject", "apiVersion"}}

	ClaimVolumeName       = Path{[]int32{2, 3}, []string{"spec", "volumeName"}}
	VolumeClaimNamespace  = Path{[]int32{2, 4, 2}, []string{"spec", "claimRef", "namespace"}}
	VolumeClaimName       = Path{[]int32{2, 4, 3}, []string{"spec", "claimRef", "name"}}
	VolumeClaimUID        = Path{[]int32{2, 4, 4}, []string{"spec", "claimRef", "uid"}}
	VolumeClaimAPIVersion = Path{[]int32{2, 4, 5}, []string{"spec", "claimRef", "apiVersion"}}
	VolumeClaimKind       = Path{[]int32{2, 4, 1}, []string{"spec", "claimRef", "kind"}}
)

// Paths through lists.
var (
	PodClaimNames       = Path{[]int32{2, 1, 2, 10, 1}, []string{"spec", "volumes", "persistentVolumeClaim", "claimName"}}
	SliceTargetKinds    = Path{[]int32{2, 4, 1}, []string{"endpoints", "targetRef", "kind"}}
	SliceTargetNames    = Path{[]int32{2, 4, 3}, []string{"endpoints", "targetRef", "name"}}
	SliceNodeNames      = Path{[]int32{2, 6}, []string{"endpoints", "nodeName"}}
	ReadyTargetKinds    = Path{[]int32{2, 1, 2, 1}, []string{"subsets", "addresses", "targetRef", "kind"}}
	ReadyTargetNames    = Path{[]int32{2, 1, 2, 3}, []string{"subsets", "addresses", "targetRef", "name"}}
	ReadyNodeNames      = Path{[]int32{2, 1, 4}, []string{"subsets", "addresses", "nodeName"}}
	NotReadyTargetKinds = Path{[]int32{2, 2, 2, 1}, []string{"subsets", "notReadyAddresses", "targetRef", "kind"}}
	NotReadyTargetNames = Path{[]int32{2, 2, 2, 3}, []string{"subsets", "notReadyAddresses", "targetRef", "name"}}
	NotReadyNodeNames   = Path{[]int32{2, 2, 4}, []string{"subsets", "notReadyAddresses", "nodeName"}}
)

// editPairs applies sets and deletes to sorted, unique pairs.
func editPairs(pairs, set []Pair, del []string) []Pair {
	out := make([]Pair, 0, len(pairs)+len(set))
	for _, p := range pairs {
		if !slices.Contains(del, p.Key) && !slices.ContainsFunc(set, func(s Pair) bool { return s.Key == p.Key }) {
			out = append(out, p)
		}
	}
	out = append(out, set...)
	return sortPairs(out)
}

// sortPairs sorts by key; of equal keys the last one stays.
func sortPairs(pairs []Pair) []Pair {
	if !slices.IsSortedFunc(pairs, func(a, b Pair) int { return strings.Compare(a.Key, b.Key) }) {
		slices.SortStableFunc(pairs, func(a, b Pair) int { return strings.Compare(a.Key, b.Key) })
	}
	out := pairs[:0]
	for i, p := range pairs {
		if i+1 < len(pairs) && pairs[i+1].Key == p.Key {
			continue
		}
		out = append(out, p)
	}
	return out
}

// alias views bytes as a string without a copy.
func alias(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(unsafe.SliceData(b), len(b))
}
