package transcode

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxDepth bounds the nesting of messages.
const maxDepth = 64

// span is where a field lies in its message: of a single one the value (for a
// varint the number itself), of a repeated one from the first tag to the end of
// the last value.
type span struct {
	set      bool
	from, to int
	number   uint64
}

// pair is one entry of a map.
type pair struct {
	key, value []byte
	number     uint64
}

// scratch holds the spans and pairs of the messages being written, innermost
// last.
type scratch struct {
	spans []span
	pairs []pair
	depth int
}

var scratches = sync.Pool{New: func() any { return &scratch{spans: make([]span, 0, 512), pairs: make([]pair, 0, 64)} }}

// Append appends the JSON of a message. apiVersion and kind are written when
// kind is not empty, as the first members.
func (p *Plan) Append(dst, msg []byte, apiVersion, kind string) ([]byte, error) {
	s := scratches.Get().(*scratch)
	defer func() {
		clear(s.pairs[:cap(s.pairs)]) // holds on to no message
		s.spans, s.pairs, s.depth = s.spans[:0], s.pairs[:0], 0
		scratches.Put(s)
	}()
	dst = append(dst, '{')
	first := true
	if kind != "" {
		dst = append(appendString(append(dst, `"kind":`...), []byte(kind)), `,"apiVersion":`...)
		dst = appendString(dst, []byte(apiVersion))
		first = false
	}
	dst, _, err := s.members(dst, p, msg, first)
	if err != nil {
		return nil, err
	}
	return append(dst, '}'), nil
}

func (s *scratch) message(dst []byte, p *Plan, msg []byte) ([]byte, error) {
	dst, _, err := s.members(append(dst, '{'), p, msg, true)
	if err != nil {
		return nil, err
	}
	return append(dst, '}'), nil
}

// members writes the fields of a message; first says that no member precedes.
func (s *scratch) members(dst []byte, p *Plan, msg []byte, first bool) ([]byte, bool, error) {
	if s.depth++; s.depth > maxDepth {
		return nil, false, ErrOdd
	}
	base := len(s.spans)
	s.spans = slices.Grow(s.spans, len(p.fields))[:base+len(p.fields)]
	clear(s.spans[base:])
	if err := p.scan(s.spans[base:], msg); err != nil {
		return nil, false, err
	}
	var err error
	for i := range p.fields {
		f := &p.fields[i]
		at := s.spans[base+i] // the slice may move while a field is written
		if f.kind == kindInline {
			if dst, first, err = s.members(dst, f.message, msg[at.from:at.to], first); err != nil {
				return nil, false, err
			}
			continue
		}
		if f.absent(at, msg) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if dst, err = s.field(append(dst, f.key...), f, at, msg, p); err != nil {
			return nil, false, err
		}
	}
	s.spans = s.spans[:base]
	s.depth--
	return dst, first, nil
}

// scan finds the fields of a message.
func (p *Plan) scan(spans []span, msg []byte) error {
	for at := 0; at < len(msg); {
		num, typ, n := protowire.ConsumeTag(msg[at:])
		if n < 0 {
			return ErrOdd
		}
		tag := at
		at += n
		if int(num) >= len(p.byNumber) || p.byNumber[num] == 0 {
			if n = protowire.ConsumeFieldValue(num, typ, msg[at:]); n < 0 || typ == protowire.EndGroupType {
				return ErrOdd
			}
			at += n
			continue
		}
		i := p.byNumber[num] - 1
		f, sp := &p.fields[i], &spans[i]
		if f.kind.varint() && f.shape != mapped {
			v, n := protowire.ConsumeVarint(msg[at:])
			if n < 0 || typ != protowire.VarintType {
				return ErrOdd
			}
			at += n
			sp.number = v
			if f.shape == repeated {
				sp.extend(tag, at)
			}
			sp.set = true
			continue
		}
		v, n := protowire.ConsumeBytes(msg[at:])
		if n < 0 || typ != protowire.BytesType {
			return ErrOdd
		}
		at += n
		switch {
		case f.shape != single:
			sp.extend(tag, at)
		case sp.set && f.kind != kindString && f.kind != kindBytes:
			return ErrOdd // a message in two parts is merged
		default:
			sp.from, sp.to = at-len(v), at
		}
		sp.set = true
	}
	return nil
}

func (sp *span) extend(tag, end int) {
	if !sp.set {
		sp.from = tag
	}
	sp.to = end
}

// absent says that a field has no member in JSON.
func (f *field) absent(at span, msg []byte) bool {
	switch {
	case f.omitZero:
		return !f.pointer && zeroTime(msg[at.from:at.to])
	case !f.omitEmpty:
		return false
	case f.shape != single || f.pointer:
		return !at.set
	}
	switch f.kind {
	case kindString, kindBytes:
		return at.from == at.to
	case kindBool:
		return at.number == 0
	case kindInt32:
		return int32(at.number) == 0 //nolint:gosec // truncated as the decoder does
	case kindInt64:
		return at.number == 0
	default:
		return false // a struct is never empty
	}
}

func (s *scratch) field(dst []byte, f *field, at span, msg []byte, p *Plan) ([]byte, error) {
	switch {
	case f.shape == single && f.pointer && !at.set, f.shape != single && !at.set, f.kind == kindBytes && f.shape == single && !at.set:
		return append(dst, "null"...), nil
	case f.shape == mapped:
		return s.entries(dst, f, msg[at.from:at.to], p)
	case f.shape == repeated:
		return s.items(dst, f, msg[at.from:at.to], p)
	}
	return s.value(dst, f, msg[at.from:at.to], at.number)
}

// next finds the next occurrence of a field; number and bytes as it is.
func next(b []byte, f *field, p *Plan) (value []byte, number uint64, rest []byte, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, 0, nil, ErrOdd
		}
		b = b[n:]
		if int(num) >= len(p.byNumber) || p.byNumber[num] == 0 || &p.fields[p.byNumber[num]-1] != f {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return nil, 0, nil, ErrOdd
			}
			b = b[n:]
			continue
		}
		if typ == protowire.VarintType {
			number, n = protowire.ConsumeVarint(b)
		} else {
			value, n = protowire.ConsumeBytes(b)
		}
		if n < 0 {
			return nil, 0, nil, ErrOdd
		}
		return value, number, b[n:], nil
	}
	return nil, 0, nil, nil
}

func (s *scratch) items(dst []byte, f *field, b []byte, p *Plan) ([]byte, error) {
	dst = append(dst, '[')
	for i := 0; len(b) > 0; i++ {
		value, number, rest, err := next(b, f, p)
		if err != nil {
			return nil, err
		}
		b = rest
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = s.value(dst, f, value, number); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func (s *scratch) entries(dst []byte, f *field, b []byte, p *Plan) ([]byte, error) {
	base := len(s.pairs)
	sorted := true
	for len(b) > 0 {
		entry, _, rest, err := next(b, f, p)
		if err != nil {
			return nil, err
		}
		b = rest
		e, err := parseEntry(entry, f.kind)
		if err != nil {
			return nil, err
		}
		if n := len(s.pairs); n > base && string(s.pairs[n-1].key) >= string(e.key) {
			sorted = false
		}
		s.pairs = append(s.pairs, e)
	}
	if !sorted {
		pairs := s.pairs[base:]
		slices.SortStableFunc(pairs, func(a, b pair) int { return slices.Compare(a.key, b.key) })
		for i := 1; i < len(pairs); i++ {
			if string(pairs[i-1].key) == string(pairs[i].key) {
				return nil, ErrOdd
			}
		}
	}
	dst = append(dst, '{')
	for i := base; i < len(s.pairs); i++ {
		e := s.pairs[i]
		if i > base {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, e.key), ':')
		var err error
		if dst, err = s.value(dst, f, e.value, e.number); err != nil {
			return nil, err
		}
	}
	s.pairs = s.pairs[:base]
	return append(dst, '}'), nil
}

// parseEntry reads key (field 1) and value (field 2) of a map entry.
func parseEntry(b []byte, kind valueKind) (e pair, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > 2 {
			return e, ErrOdd
		}
		b = b[n:]
		if num == 2 && kind.varint() {
			if e.number, n = protowire.ConsumeVarint(b); typ != protowire.VarintType {
				return e, ErrOdd
			}
		} else {
			var v []byte
			if v, n = protowire.ConsumeBytes(b); typ != protowire.BytesType {
				return e, ErrOdd
			}
			if num == 1 {
				e.key = v
			} else {
				e.value = v
			}
		}
		if n < 0 {
			return e, ErrOdd
		}
		b = b[n:]
	}
	return e, nil
}

// value writes one value that is there, or the zero one.
func (s *scratch) value(dst []byte, f *field, b []byte, number uint64) ([]byte, error) {
	switch f.kind {
	case kindString:
		return appendString(dst, b), nil
	case kindBytes:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, b)
		return append(dst, '"'), nil
	case kindBool:
		return strconv.AppendBool(dst, number != 0), nil
	case kindInt32:
		return strconv.AppendInt(dst, int64(int32(number)), 10), nil //nolint:gosec // truncated as the decoder does
	case kindInt64:
		return strconv.AppendInt(dst, int64(number), 10), nil //nolint:gosec // the same bits
	case kindMessage:
		return s.message(dst, f.message, b)
	case kindTime:
		return appendTime(dst, b)
	case kindFieldsV1:
		return appendFieldsV1(dst, b)
	case kindQuantity:
		return appendQuantity(dst, b)
	case kindLeaf:
		return appendLeaf(dst, f.leaf, b)
	case kindInline:
	}
	return nil, ErrOdd
}

// appendLeaf takes the long way for one value.
func appendLeaf(dst []byte, t reflect.Type, b []byte) ([]byte, error) {
	v := reflect.New(t)
	if t.Kind() == reflect.Slice {
		v.Elem().Set(reflect.MakeSlice(t, 0, 0)) // what is there is not nil
	}
	if err := v.Interface().(unmarshalProto).Unmarshal(b); err != nil {
		return nil, ErrOdd
	}
	text, err := json.Marshal(v.Interface())
	if err != nil {
		return nil, ErrOdd
	}
	return append(dst, text...), nil
}

// seconds reads a Timestamp, of which metav1.Time keeps the seconds.
func seconds(b []byte) (int64, error) {
	var out uint64
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > 2 || typ != protowire.VarintType {
			return 0, ErrOdd
		}
		b = b[n:]
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return 0, ErrOdd
		}
		b = b[n:]
		if num == 1 {
			out = v
		}
	}
	return int64(out), nil //nolint:gosec // the same bits
}

// zeroSeconds is the zero time.Time.
var zeroSeconds = time.Time{}.Unix()

func zeroTime(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	at, err := seconds(b)
	return err == nil && at == zeroSeconds
}

func appendTime(dst, b []byte) ([]byte, error) {
	if len(b) == 0 {
		return append(dst, "null"...), nil
	}
	at, err := seconds(b)
	if err != nil {
		return nil, err
	}
	if at == zeroSeconds {
		return append(dst, "null"...), nil
	}
	dst = append(dst, '"')
	dst = time.Unix(at, 0).UTC().AppendFormat(dst, time.RFC3339)
	return append(dst, '"'), nil
}

var fieldsV1Leaf = reflect.TypeFor[metav1.FieldsV1]()
