// Package transcode turns the protobuf bytes of a Kubernetes API type into
// its JSON without building the Go value in between.
//
//	Go type -> Plan (once): fields in JSON order, found by protobuf number
//	bytes   -> Plan.Append: one scan for the spans of the fields, then the
//	           members in order, nested messages likewise
//
// The result is byte for byte what encoding/json makes of the decoded value.
// Whatever is out of the ordinary (a field of the wrong wire type, a message
// in two parts, malformed bytes) is ErrOdd: the caller then takes the long way,
// which alone defines what such bytes mean.
package transcode

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrOdd says that the bytes are not of the form that a plan reads.
var ErrOdd = errors.New("bytes need the full decoder")

// valueKind is how a value is read and written.
type valueKind uint8

const (
	kindString valueKind = iota
	kindBytes
	kindBool
	kindInt32
	kindInt64
	kindMessage
	// kindInline is an embedded struct: a message of its own on the wire,
	// members of the enclosing object in JSON.
	kindInline
	kindTime
	kindFieldsV1
	kindQuantity
	// kindLeaf is a type with its own JSON form: decoded and encoded as it
	// says itself.
	kindLeaf
)

// varint says that the value is a varint on the wire; all others are bytes.
func (k valueKind) varint() bool { return k == kindBool || k == kindInt32 || k == kindInt64 }

// shape is how often a field may occur.
type shape uint8

const (
	single shape = iota
	repeated
	mapped
)

type field struct {
	key     []byte // `"name":`
	kind    valueKind
	shape   shape
	pointer bool
	// omitEmpty drops an empty value, omitZero a zero Time.
	omitEmpty, omitZero bool
	message             *Plan        // kindMessage, kindInline
	leaf                reflect.Type // kindLeaf
}

// Plan is the compiled form of one Go type. It is immutable once built.
type Plan struct {
	typ    reflect.Type
	fields []field
	// byNumber is the index of a field plus one by its protobuf number.
	byNumber []uint16
}

// maxNumber bounds the table; API types stay far below.
const maxNumber = 1 << 12

var plans = struct {
	sync.Mutex
	byType map[reflect.Type]*Plan
}{byType: map[reflect.Type]*Plan{}}

// PlanFor compiles a struct type of the API. An error means that the type has
// something that plans do not know.
func PlanFor(t reflect.Type) (*Plan, error) {
	plans.Lock()
	defer plans.Unlock()
	// A failure leaves half-built plans behind: they are dropped as a whole.
	b := builder{built: map[reflect.Type]*Plan{}}
	p, err := b.plan(t)
	if err != nil {
		return nil, err
	}
	maps.Copy(plans.byType, b.built)
	return p, nil
}

type builder struct{ built map[reflect.Type]*Plan }

func (b *builder) plan(t reflect.Type) (*Plan, error) {
	if p, ok := plans.byType[t]; ok {
		return p, nil
	}
	if p, ok := b.built[t]; ok {
		return p, nil
	}
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is not a struct", t)
	}
	p := &Plan{typ: t}
	b.built[t] = p
	for field := range t.Fields() {
		if err := b.add(p, field); err != nil {
			return nil, fmt.Errorf("%s: %w", t, err)
		}
	}
	return p, unique(p)
}

// unique refuses two members of one name, for which JSON has a rule of its own.
func unique(p *Plan) error {
	seen := map[string]bool{}
	var walk func(*Plan) error
	walk = func(p *Plan) error {
		for _, f := range p.fields {
			if f.kind == kindInline {
				if err := walk(f.message); err != nil {
					return err
				}
				continue
			}
			if seen[string(f.key)] {
				return fmt.Errorf("%s: two members %s", p.typ, f.key)
			}
			seen[string(f.key)] = true
		}
		return nil
	}
	return walk(p)
}

var typeMeta = reflect.TypeFor[metav1.TypeMeta]()

func (b *builder) add(p *Plan, sf reflect.StructField) error {
	name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
	switch {
	case sf.Type == typeMeta && sf.Anonymous && sf.Tag.Get("protobuf") == "":
		return nil // written by Append for the outermost object, else empty
	case name == "-" && options == "", !sf.IsExported() && !sf.Anonymous:
		return nil
	case strings.Contains(","+options+",", ",string,"):
		return fmt.Errorf("field %s is a quoted number", sf.Name)
	}
	number, err := protobufTag(sf)
	if err != nil {
		return err
	}
	f := field{
		omitEmpty: strings.Contains(","+options+",", ",omitempty,"),
		omitZero:  strings.Contains(","+options+",", ",omitzero,"),
	}
	if sf.Anonymous && name == "" {
		f.kind = kindInline
		if sf.Type.Kind() != reflect.Struct || customJSON(sf.Type) {
			return fmt.Errorf("embedded field %s", sf.Name)
		}
		f.message, err = b.plan(sf.Type)
	} else {
		if name == "" {
			name = sf.Name
		}
		f.key = append(appendString(nil, []byte(name)), ':')
		err = b.value(&f, sf.Type)
	}
	if err != nil {
		return fmt.Errorf("field %s: %w", sf.Name, err)
	}
	if f.omitZero && (f.kind != kindTime || f.shape != single) {
		return fmt.Errorf("field %s: omitzero of %s", sf.Name, sf.Type)
	}
	p.fields = append(p.fields, f)
	for len(p.byNumber) <= number {
		p.byNumber = append(p.byNumber, 0)
	}
	p.byNumber[number] = uint16(len(p.fields)) //nolint:gosec // fields are few
	return nil
}

func protobufTag(sf reflect.StructField) (int, error) {
	parts := strings.Split(sf.Tag.Get("protobuf"), ",")
	if len(parts) < 3 {
		return 0, fmt.Errorf("field %s has no protobuf number", sf.Name)
	}
	number, err := strconv.Atoi(parts[1])
	if err != nil || number <= 0 || number > maxNumber {
		return 0, fmt.Errorf("field %s has the protobuf number %q", sf.Name, parts[1])
	}
	return number, nil
}

// value fills in how a field of a Go type is read and written. A slice or map
// that is a message of its own (ExtraValue, Verbs) is one value.
func (b *builder) value(f *field, t reflect.Type) error {
	collection := !customJSON(t) && !isMessage(t)
	switch {
	case t.Kind() == reflect.Pointer:
		f.pointer = true
		if err := b.one(f, t.Elem()); err != nil {
			return err
		}
		if f.kind == kindBytes {
			return fmt.Errorf("pointer to %s", t.Elem())
		}
		return nil
	case t.Kind() == reflect.Map && collection:
		if t.Key().Kind() != reflect.String || customJSON(t.Key()) {
			return fmt.Errorf("map with keys of %s", t.Key())
		}
		f.shape = mapped
		return b.one(f, t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && collection:
		f.shape = repeated
		if t.Elem().Kind() == reflect.Pointer {
			return b.one(f, t.Elem().Elem())
		}
		return b.one(f, t.Elem())
	}
	return b.one(f, t)
}

var (
	timeType     = reflect.TypeFor[metav1.Time]()
	fieldsV1Type = reflect.TypeFor[metav1.FieldsV1]()
	quantityType = reflect.TypeFor[resource.Quantity]()

	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	unmarshaler   = reflect.TypeFor[unmarshalProto]()
)

type unmarshalProto interface{ Unmarshal([]byte) error }

// customJSON says that a type does not have the JSON of its kind.
func customJSON(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonMarshaler) || p.Implements(textMarshaler)
}

// isMessage says that a type reads itself from protobuf.
func isMessage(t reflect.Type) bool { return reflect.PointerTo(t).Implements(unmarshaler) }

// one fills in how one value of a Go type is read and written.
func (b *builder) one(f *field, t reflect.Type) (err error) {
	switch t {
	case timeType:
		f.kind = kindTime
		return nil
	case fieldsV1Type:
		f.kind = kindFieldsV1
		return nil
	case quantityType:
		f.kind = kindQuantity
		return nil
	}
	plain := !customJSON(t)
	switch {
	case plain && t.Kind() == reflect.String:
		f.kind = kindString
	case plain && t.Kind() == reflect.Bool:
		f.kind = kindBool
	case plain && t.Kind() == reflect.Int32:
		f.kind = kindInt32
	case plain && t.Kind() == reflect.Int64:
		f.kind = kindInt64
	case plain && t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		f.kind = kindBytes
	case plain && t.Kind() == reflect.Struct:
		f.kind = kindMessage
		f.message, err = b.plan(t)
		return err
	case isMessage(t) && (f.shape != single || f.pointer || t.Kind() == reflect.Struct):
		f.kind, f.leaf = kindLeaf, t
	default:
		return fmt.Errorf("values of %s", t)
	}
	return nil
}
