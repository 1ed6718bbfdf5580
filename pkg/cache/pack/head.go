package pack

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"sync"
	"unsafe"

	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/compact"
)

// A head is a row of records, one an object. The first key stands at its
// beginning in plain, for look-ups; a text is written once and then referred to
// by its number.

const maxScratch = 4 << 20

var writers = sync.Pool{New: func() any { return &writer{known: map[string]uint64{}} }}

// writer builds a head.
type writer struct {
	out          []byte
	known        map[string]uint64 // texts by number
	first        bool
	body, packed []byte
}

func (w *writer) reset() {
	w.out = w.out[:0]
	clear(w.known)
	w.first = true
}

func (w *writer) number(n uint64) { w.out = binary.AppendUvarint(w.out, n) }

func (w *writer) plain(s string) {
	w.number(uint64(len(s)))
	w.out = append(w.out, s...)
}

// ref writes a text, or the number it has.
func (w *writer) ref(s string) {
	if n, ok := w.known[s]; ok {
		w.number(n + 1)
		return
	}
	w.known[s] = uint64(len(w.known))
	w.number(0)
	w.plain(s)
}

// uid writes a UID in half of its length where it has the usual form.
func (w *writer) uid(uid types.UID) {
	if n, ok := w.known[string(uid)]; ok {
		w.number(n + 2)
		return
	}
	w.known[string(uid)] = uint64(len(w.known))
	if b, ok := packUID(string(uid)); ok {
		w.number(1)
		w.out = append(w.out, b[:]...)
		return
	}
	w.number(0)
	w.plain(string(uid))
}

const (
	hasOwners = 1 << iota
	hasNode
	hasOthers
	hasOrigin
	hasLabels
	hasFields
)

func (w *writer) object(o *cache.Object) {
	if w.first {
		w.plain(o.Key.Namespace)
		w.plain(o.Key.Name)
		w.known[o.Key.Namespace] = 0
		if o.Key.Name != o.Key.Namespace {
			w.known[o.Key.Name] = 1
		}
		w.first = false
	}
	w.ref(o.Key.Namespace)
	w.ref(o.Key.Name)
	w.ref(o.SourceName)
	w.ref(string(o.Cluster))
	w.uid(o.UID)
	w.number(o.RV)
	w.number(o.SourceRV)
	w.number(uint64(o.Body.Len())) //nolint:gosec // a length
	labels, hasL := labelsOf(o)
	fields, hasF := fieldsOf(o)
	flags := uint64(0)
	set := func(flag uint64, on bool) {
		if on {
			flags |= flag
		}
	}
	set(hasLabels, hasL)
	set(hasFields, hasF)
	if r := o.Origin; r != nil {
		set(hasOrigin, true)
		set(hasOwners, len(r.Owners) > 0)
		set(hasNode, r.Node != "")
		set(hasOthers, r.Others != nil)
	}
	w.number(flags)
	if hasL {
		w.number(uint64(labels.Len())) //nolint:gosec // a length
		for k, v := range labels.All() {
			w.ref(k)
			w.ref(v)
		}
	}
	if hasF {
		for v := range fields.Values() {
			w.ref(v)
		}
	}
	w.origin(o.Origin, flags)
}

func (w *writer) origin(r *cache.Origin, flags uint64) {
	if flags&hasNode != 0 {
		w.ref(r.Node)
	}
	if flags&hasOwners != 0 {
		w.number(uint64(len(r.Owners)))
		for _, o := range r.Owners {
			w.ref(o.APIVersion)
			w.ref(o.Kind)
			w.ref(o.Name)
			w.uid(o.UID)
			controller := uint64(0)
			if o.Controller {
				controller = 1
			}
			w.number(controller)
		}
	}
	if flags&hasOthers != 0 {
		w.others(r.Others)
	}
}

func (w *writer) others(r *cache.OtherRefs) {
	v := r.Involved
	for _, s := range []string{v.APIVersion, v.Kind, v.Namespace, v.Name} {
		w.ref(s)
	}
	w.uid(v.UID)
	// A list that is nil is told from an empty one.
	w.list(len(r.Lists), r.Lists == nil)
	for _, names := range r.Lists {
		w.list(len(names), names == nil)
		for _, n := range names {
			w.ref(n)
		}
	}
}

func (w *writer) list(n int, none bool) {
	if none {
		w.number(0)
		return
	}
	w.number(uint64(n) + 1) //nolint:gosec // a length
}

// labelSet is a label set that can be packed.
type labelSet interface {
	Len() int
	All() iter.Seq2[string, string]
}

var (
	_ labelSet = compact.Labels{}
	_ labelSet = (*headLabels)(nil)
	_ fieldSet = (*compact.Fields)(nil)
	_ fieldSet = (*headFields)(nil)
)

// fieldSet is the values of selectable fields that can be packed.
type fieldSet interface{ Values() iter.Seq[string] }

func labelsOf(o *cache.Object) (labelSet, bool) {
	if o.Labels == nil {
		return nil, false
	}
	l, ok := o.Labels.(labelSet)
	if !ok {
		panic(fmt.Sprintf("labels of type %T cannot be packed", o.Labels))
	}
	return l, true
}

func fieldsOf(o *cache.Object) (fieldSet, bool) {
	if o.Fields == nil {
		return nil, false
	}
	f, ok := o.Fields.(fieldSet)
	if !ok {
		panic(fmt.Sprintf("fields of type %T cannot be packed", o.Fields))
	}
	return f, true
}

// packUID is the 16 bytes of a UID of the form 8-4-4-4-12 in small letters.
func packUID(s string) (b [16]byte, ok bool) {
	if len(s) != 36 {
		return b, false
	}
	var digits [32]byte
	n := 0
	for i := range len(s) {
		c := s[i]
		switch dash := i == 8 || i == 13 || i == 18 || i == 23; {
		case dash && c == '-':
		case dash || (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return b, false
		default:
			digits[n] = c
			n++
		}
	}
	_, err := hex.Decode(b[:], digits[:])
	return b, err == nil
}

func appendUID(dst []byte, b string) []byte {
	const digits = "0123456789abcdef"
	for i := range len(b) {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, digits[b[i]>>4], digits[b[i]&15])
	}
	return dst
}

// reader reads a head. Its texts alias in. A mistake sets bad and gives zeros.
type reader struct {
	texts
	in   string
	uids []byte // where the next UIDs go
	bad  bool
}

func (r *reader) number() uint64 {
	var n uint64
	for i, shift := 0, 0; i < len(r.in) && shift < 64; i, shift = i+1, shift+7 {
		c := r.in[i]
		n |= uint64(c&0x7f) << shift
		if c < 0x80 {
			r.in = r.in[i+1:]
			return n
		}
	}
	r.in, r.bad = "", true
	return 0
}

func (r *reader) cut(n uint64) string {
	if n > uint64(len(r.in)) {
		r.in, r.bad = "", true
		return ""
	}
	s := r.in[:n]
	r.in = r.in[n:]
	return s
}

func (r *reader) text() string { return r.cut(r.number()) }

func (r *reader) at(n uint64) string {
	if n >= uint64(len(r.known)) {
		r.bad = true
		return ""
	}
	return r.known[n]
}

func (r *reader) ref() string {
	if n := r.number(); n > 0 {
		return r.at(n - 1)
	}
	s := r.text()
	r.known = append(r.known, s)
	return s
}

// skip reads n texts and gives the part of the head that they are.
func (r *reader) skip(n uint64) string {
	from := r.in
	for ; n > 0 && !r.bad; n-- {
		r.ref()
	}
	return from[:len(from)-len(r.in)]
}

func (r *reader) uid() types.UID {
	var s string
	switch n := r.number(); n {
	case 0:
		s = r.text()
	case 1:
		s = r.spell(r.cut(16))
	default:
		return types.UID(r.at(n - 2))
	}
	r.known = append(r.known, s)
	return types.UID(s)
}

// uidsAtOnce is how many UIDs share a piece of memory.
const uidsAtOnce = 16

// spell writes out a UID that was packed into 16 bytes.
func (r *reader) spell(packed string) string {
	const size = 36
	if cap(r.uids)-len(r.uids) < size {
		r.uids = make([]byte, 0, uidsAtOnce*size)
	}
	from := len(r.uids)
	r.uids = appendUID(r.uids, packed)
	return alias(r.uids[from:])
}

// record is an object and what it points to, in one piece of memory.
type record struct {
	object cache.Object
	body   body
	labels headLabels
	fields headFields
	origin cache.Origin
	owner  [1]cache.OwnerRef
}

// memory is where a head is read to.
type memory struct {
	known   []string
	records []record
	objects []*cache.Object
	uids    []byte
}

// read reads a head of count objects whose bytes are in a set.
func (p *Packer) read(head string, count int, bytes *set) ([]*cache.Object, error) {
	return p.readTo(&memory{}, head, count, bytes)
}

func (p *Packer) readTo(m *memory, head string, count int, bytes *set) ([]*cache.Object, error) {
	m.known = slices.Grow(m.known[:0], 16+4*min(count, 1024))
	m.records = slices.Grow(m.records[:0], count)[:count]
	m.objects = slices.Grow(m.objects[:0], count)[:count]
	r := &reader{in: head, texts: texts{known: m.known}, uids: m.uids[:0]}
	if count > 0 {
		r.known = append(r.known, r.text())
		if name := r.text(); name != r.known[0] {
			r.known = append(r.known, name)
		}
	}
	at, size := 0, bytes.total()
	for i := range m.records {
		rec := &m.records[i]
		at = p.record(r, rec, bytes, at)
		m.objects[i] = &rec.object
		if r.bad || at > size {
			return nil, fmt.Errorf("%w: object %d of %d", ErrMalformed, i, count)
		}
	}
	if at != size || r.in != "" {
		return nil, fmt.Errorf("%w: %d objects of %d bytes, not %d", ErrMalformed, count, at, size)
	}
	m.known, m.uids = r.known, r.uids
	return m.objects, nil
}

func (p *Packer) record(r *reader, rec *record, bytes *set, at int) int {
	o := &rec.object
	o.Key = cache.Key{Namespace: r.ref(), Name: r.ref()}
	o.SourceName = r.ref()
	o.Cluster = cache.ClusterName(r.ref())
	o.UID = r.uid()
	o.RV, o.SourceRV = r.number(), r.number()
	end := at + int(min(r.number(), maxBody)) //nolint:gosec // bounded
	rec.body = body{set: bytes, from: at, to: end}
	o.Body = &rec.body
	flags := r.number()
	if flags&hasLabels != 0 {
		n := r.number()
		rec.labels = headLabels{texts: &r.texts, count: int(min(n, maxBody))} //nolint:gosec // bounded
		rec.labels.part = r.skip(2 * min(n, maxBody))
		o.Labels = &rec.labels
	}
	if flags&hasFields != 0 {
		rec.fields = headFields{texts: &r.texts, names: p.Fields, part: r.skip(uint64(len(p.Fields)))}
		o.Fields = &rec.fields
	}
	if flags&hasOrigin != 0 {
		r.origin(rec, flags)
	}
	return end
}

func (r *reader) origin(rec *record, flags uint64) {
	origin := &rec.origin
	rec.object.Origin = origin
	if flags&hasNode != 0 {
		origin.Node = r.ref()
	}
	if flags&hasOwners != 0 {
		n := r.number()
		if n > uint64(len(r.in)) {
			r.bad = true
			return
		}
		origin.Owners = rec.owner[:0]
		for ; n > 0; n-- {
			origin.Owners = append(origin.Owners, cache.OwnerRef{
				APIVersion: r.ref(), Kind: r.ref(), Name: r.ref(), UID: r.uid(), Controller: r.number() == 1,
			})
		}
	}
	if flags&hasOthers != 0 {
		origin.Others = r.others()
	}
}

func (r *reader) others() *cache.OtherRefs {
	others := &cache.OtherRefs{Involved: cache.InvolvedRef{APIVersion: r.ref(), Kind: r.ref(), Namespace: r.ref(), Name: r.ref(), UID: r.uid()}}
	n, some := r.list()
	if !some {
		return others
	}
	others.Lists = make([][]string, n)
	for i := range others.Lists {
		n, some := r.list()
		if !some {
			continue
		}
		others.Lists[i] = make([]string, n)
		for j := range others.Lists[i] {
			others.Lists[i][j] = r.ref()
		}
	}
	return others
}

// list reads the length of a list, which takes at least a byte for each item.
func (r *reader) list() (n int, some bool) {
	v := r.number()
	if v > uint64(len(r.in))+1 {
		r.bad = true
		return 0, false
	}
	return int(v) - 1, v > 0 //nolint:gosec // bounded
}

// alias views bytes as a string that is valid as long as they are.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
