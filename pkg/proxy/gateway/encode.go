package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// listMeta is the metadata of a list; it is known before the first item.
type listMeta = metav1.ListMeta

// encoder writes served objects in one negotiated form. It has no state of its
// own, so that its results can be kept in an Event's Memo under its id.
type encoder interface {
	// id names the form: equal ids make equal bytes.
	id() string
	contentType() string
	// object appends one object as a complete body.
	object(dst []byte, o *cache.Object) ([]byte, error)
	// head appends everything before the first item of a list; size is the
	// sum of the items' sizes for a form that is sized.
	head(dst []byte, m listMeta, size int) ([]byte, error)
	// item appends the i-th item, with what separates it from the one before.
	item(dst []byte, i int, o *cache.Object) ([]byte, error)
	// tail appends what follows n items.
	tail(dst []byte, n int) []byte
	// sized says that head needs the sum of itemSize over all items.
	sized() bool
	itemSize(o *cache.Object) (int, error)
	// packSize is that sum for a pack; known is false where its objects have
	// to be asked.
	packSize(p cache.Pack) (size int, known bool, err error)
	// pieces says how parts of a list in this form are kept.
	pieces() piecePlan
}

// encoderFor builds the encoder of a kind in a form.
func encoderFor(k *kind, f form, tables *tableMaker) encoder {
	var v valueMaker
	switch {
	case f.media == runtime.ContentTypeProtobuf:
		return protoEncoder{kind: k, form: f}
	case f.as == asTable:
		v = tableValue{kind: k, form: f, tables: tables}
	case f.as == asPartial:
		v = partialValue{kind: k, gv: f.metaVersion}
	default:
		v = objectValue{kind: k}
	}
	if f.media == runtime.ContentTypeYAML {
		return yamlEncoder{value: v}
	}
	return jsonEncoder{value: v, pretty: f.pretty}
}

// protoMagic begins every protobuf answer of the API.
var protoMagic = []byte("k8s\x00")

// Field numbers of runtime.Unknown and of lists in protobuf.
const (
	unknownTypeMeta        = 1
	unknownRaw             = 2
	unknownContentEncoding = 3
	unknownContentType     = 4
	listMetaField          = 1
	listItemField          = 2
)

// protoEncoder splices cached protobuf bytes into answers.
type protoEncoder struct {
	kind *kind
	form form
}

func (e protoEncoder) id() string {
	return fmt.Sprintf("protobuf/%d/%s/%s", e.form.as, e.form.metaVersion.Version, e.kind.gvk.Group)
}

func (e protoEncoder) contentType() string { return runtime.ContentTypeProtobuf }
func (e protoEncoder) sized() bool         { return true }

// gvkOf is the kind of one object in this form.
func (e protoEncoder) gvkOf() schema.GroupVersionKind {
	if e.form.as == asPartial {
		return e.form.metaVersion.WithKind("PartialObjectMetadata")
	}
	return e.kind.gvk
}

// message is the bare protobuf message of one object in this form.
func (e protoEncoder) message(o *cache.Object) ([]byte, error) {
	if e.form.as != asPartial {
		return e.kind.raw(o)
	}
	meta, err := e.partialMeta(o)
	if err != nil {
		return nil, err
	}
	b := protowire.AppendTag(nil, metadataField, protowire.BytesType)
	return protowire.AppendBytes(b, meta), nil
}

func (e protoEncoder) partialMeta(o *cache.Object) ([]byte, error) {
	if e.kind.encoding == cache.Protobuf {
		return protoMetadata(o.Raw())
	}
	m, err := e.kind.metadata(o)
	if err != nil {
		return nil, err
	}
	b, err := m.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding the metadata of %s: %w", o.Key, err)
	}
	return b, nil
}

// appendEnvelope appends the head of a runtime.Unknown that holds size bytes.
// The caller appends those bytes and then envelopeEnd.
func appendEnvelope(dst []byte, gvk schema.GroupVersionKind, size int) []byte {
	apiVersion, kindName := gvk.ToAPIVersionAndKind()
	var typeMeta []byte
	typeMeta = protowire.AppendTag(typeMeta, 1, protowire.BytesType)
	typeMeta = protowire.AppendString(typeMeta, apiVersion)
	typeMeta = protowire.AppendTag(typeMeta, 2, protowire.BytesType)
	typeMeta = protowire.AppendString(typeMeta, kindName)

	dst = append(dst, protoMagic...)
	dst = protowire.AppendTag(dst, unknownTypeMeta, protowire.BytesType)
	dst = protowire.AppendBytes(dst, typeMeta)
	dst = protowire.AppendTag(dst, unknownRaw, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(size))
}

// envelopeEnd is the empty contentEncoding and contentType.
var envelopeEnd = protowire.AppendBytes(protowire.AppendTag(
	protowire.AppendBytes(protowire.AppendTag(nil, unknownContentEncoding, protowire.BytesType), nil),
	unknownContentType, protowire.BytesType), nil)

func (e protoEncoder) object(dst []byte, o *cache.Object) ([]byte, error) {
	msg, err := e.message(o)
	if err != nil {
		return nil, err
	}
	dst = appendEnvelope(dst, e.gvkOf(), len(msg))
	return append(append(dst, msg...), envelopeEnd...), nil
}

func (e protoEncoder) head(dst []byte, m listMeta, size int) ([]byte, error) {
	b, err := m.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding list metadata: %w", err)
	}
	meta := protowire.AppendTag(nil, listMetaField, protowire.BytesType)
	meta = protowire.AppendBytes(meta, b)
	dst = appendEnvelope(dst, listKind(e.gvkOf()), len(meta)+size)
	return append(dst, meta...), nil
}

func (e protoEncoder) item(dst []byte, _ int, o *cache.Object) ([]byte, error) {
	msg, err := e.message(o)
	if err != nil {
		return nil, err
	}
	dst = protowire.AppendTag(dst, listItemField, protowire.BytesType)
	return protowire.AppendBytes(dst, msg), nil
}

func (e protoEncoder) tail(dst []byte, _ int) []byte { return append(dst, envelopeEnd...) }

func (e protoEncoder) packSize(p cache.Pack) (size int, known bool, err error) {
	switch {
	case e.form.as != asPartial: // in another version an object is as long
		return p.Framed(), true, nil
	case e.kind.encoding == cache.Protobuf:
		size, err = p.FramedMetadata()
		return size, true, err
	}
	return 0, false, nil
}

// pieces: without compression the objects are kept in this very form.
func (e protoEncoder) pieces() piecePlan {
	plan := piecePlan{form: e.id(), gzip: true}
	if e.kind.encoding == cache.Protobuf && (e.kind.rewrite == nil || e.form.as == asPartial) {
		plan.items = func(dst []byte, p cache.Pack) ([]byte, error) {
			return p.AppendItems(dst, e.form.as == asPartial)
		}
	}
	return plan
}

func (e protoEncoder) itemSize(o *cache.Object) (int, error) {
	n := o.Body.Len()
	if e.form.as == asPartial {
		msg, err := e.message(o)
		if err != nil {
			return 0, err
		}
		n = len(msg)
	}
	return protowire.SizeTag(listItemField) + protowire.SizeBytes(n), nil
}

func listKind(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	gvk.Kind += "List"
	return gvk
}

// valueMaker makes the JSON values of a textual form.
type valueMaker interface {
	id() string
	// value appends one object: an item of a list, or a complete answer.
	value(dst []byte, o *cache.Object, item bool) ([]byte, error)
	// listHead is a JSON object with all members of the list but its items,
	// and the name of the member that holds those.
	listHead(m listMeta) (head []byte, items string, err error)
	// pieces completes the plan for lists of these values.
	pieces(p piecePlan) piecePlan
}

// listHeader is the head of every list but a Table.
type listHeader struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ListMeta `json:"metadata"`
}

func makeListHead(gvk schema.GroupVersionKind, m listMeta) ([]byte, string, error) {
	apiVersion, kindName := listKind(gvk).ToAPIVersionAndKind()
	b, err := json.Marshal(listHeader{TypeMeta: metav1.TypeMeta{Kind: kindName, APIVersion: apiVersion}, Metadata: m})
	if err != nil {
		return nil, "", fmt.Errorf("encoding list metadata: %w", err)
	}
	return b, "items", nil
}

type objectValue struct{ kind *kind }

func (v objectValue) id() string { return "object/" + v.kind.gvk.Group }

func (v objectValue) value(dst []byte, o *cache.Object, item bool) ([]byte, error) {
	return v.kind.appendJSON(dst, o, item)
}

// pieces: of a kind that is kept as JSON, the objects are in this very form.
func (v objectValue) pieces(p piecePlan) piecePlan {
	p.plain = v.kind.encoding != cache.JSON
	return p
}

func (v objectValue) listHead(m listMeta) ([]byte, string, error) {
	return makeListHead(v.kind.gvk, m)
}

type partialValue struct {
	kind *kind
	gv   schema.GroupVersion
}

func (v partialValue) id() string { return "partial/" + v.gv.Version }

func (v partialValue) value(dst []byte, o *cache.Object, _ bool) ([]byte, error) {
	return v.kind.appendPartial(dst, o, v.gv)
}

func (v partialValue) pieces(p piecePlan) piecePlan { return p }

func (v partialValue) listHead(m listMeta) ([]byte, string, error) {
	return makeListHead(v.gv.WithKind("PartialObjectMetadata"), m)
}

func partialOf(m *metav1.ObjectMeta, gv schema.GroupVersion) *metav1.PartialObjectMetadata {
	apiVersion, kindName := gv.WithKind("PartialObjectMetadata").ToAPIVersionAndKind()
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: kindName, APIVersion: apiVersion}, ObjectMeta: *m}
}

// unsized is embedded by the encoders of text.
type unsized struct{}

func (unsized) sized() bool                            { return false }
func (unsized) itemSize(*cache.Object) (int, error)    { return 0, nil }
func (unsized) packSize(cache.Pack) (int, bool, error) { return 0, false, nil }

// jsonEncoder frames JSON values, indented for people when asked to.
type jsonEncoder struct {
	unsized
	value  valueMaker
	pretty bool
}

func (e jsonEncoder) id() string          { return fmt.Sprintf("json/%t/%s", e.pretty, e.value.id()) }
func (e jsonEncoder) contentType() string { return runtime.ContentTypeJSON }

// pieces: what is indented is for people to read, a little at a time.
func (e jsonEncoder) pieces() piecePlan {
	if e.pretty {
		return piecePlan{}
	}
	return e.value.pieces(piecePlan{form: e.id(), plain: true, gzip: true, separated: true})
}

func (e jsonEncoder) object(dst []byte, o *cache.Object) ([]byte, error) {
	if !e.pretty {
		dst, err := e.value.value(dst, o, false)
		return append(dst, '\n'), err
	}
	b, err := e.value.value(nil, o, false)
	if err != nil {
		return nil, err
	}
	dst, err = appendIndented(dst, b, "")
	return append(dst, '\n'), err
}

func (e jsonEncoder) head(dst []byte, m listMeta, _ int) ([]byte, error) {
	head, items, err := e.value.listHead(m)
	if err != nil {
		return nil, err
	}
	if !e.pretty {
		dst = append(dst, bytes.TrimSuffix(head, []byte("}"))...)
		return fmt.Appendf(dst, `,%q:[`, items), nil
	}
	dst, err = appendIndented(dst, head, "")
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(bytes.TrimSuffix(dst, []byte("\n}")), ",\n  %q: [", items), nil
}

// itemIndent is how deep the items of an indented list are.
const itemIndent = "    "

func (e jsonEncoder) item(dst []byte, i int, o *cache.Object) ([]byte, error) {
	if i > 0 {
		dst = append(dst, ',')
	}
	if !e.pretty {
		return e.value.value(dst, o, true)
	}
	b, err := e.value.value(nil, o, true)
	if err != nil {
		return nil, err
	}
	return appendIndented(append(dst, "\n"+itemIndent...), b, itemIndent)
}

func (e jsonEncoder) tail(dst []byte, n int) []byte {
	switch {
	case !e.pretty:
		return append(dst, "]}\n"...)
	case n == 0:
		return append(dst, "]\n}\n"...)
	}
	return append(dst, "\n  ]\n}\n"...)
}

func appendIndented(dst, b []byte, prefix string) ([]byte, error) {
	buf := bytes.NewBuffer(dst)
	if err := json.Indent(buf, b, prefix, "  "); err != nil {
		return nil, fmt.Errorf("indenting JSON: %w", err)
	}
	return buf.Bytes(), nil
}

// yamlEncoder writes the same values as YAML.
type yamlEncoder struct {
	unsized
	value valueMaker
}

func (e yamlEncoder) id() string          { return "yaml/" + e.value.id() }
func (e yamlEncoder) contentType() string { return runtime.ContentTypeYAML }
func (e yamlEncoder) pieces() piecePlan   { return piecePlan{} }

func (e yamlEncoder) object(dst []byte, o *cache.Object) ([]byte, error) {
	b, err := e.value.value(nil, o, false)
	if err != nil {
		return nil, err
	}
	return appendYAML(dst, b)
}

func (e yamlEncoder) head(dst []byte, m listMeta, _ int) ([]byte, error) {
	head, items, err := e.value.listHead(m)
	if err != nil {
		return nil, err
	}
	if dst, err = appendYAML(dst, head); err != nil {
		return nil, err
	}
	return append(append(dst, items...), ':'), nil
}

// item writes "- " before the first line of the value and as many blanks
// before every other, which keeps the meaning of all YAML scalars.
func (e yamlEncoder) item(dst []byte, i int, o *cache.Object) ([]byte, error) {
	b, err := e.value.value(nil, o, true)
	if err != nil {
		return nil, err
	}
	text, err := appendYAML(nil, b)
	if err != nil {
		return nil, err
	}
	if i == 0 {
		dst = append(dst, '\n')
	}
	mark := "- "
	for line := range bytes.Lines(text) {
		if len(line) > 1 {
			dst = append(dst, mark...)
		}
		dst = append(dst, line...)
		mark = "  "
	}
	return dst, nil
}

func (e yamlEncoder) tail(dst []byte, n int) []byte {
	if n == 0 {
		return append(dst, " []\n"...)
	}
	return dst
}

func appendYAML(dst, b []byte) ([]byte, error) {
	text, err := yaml.JSONToYAML(b)
	if err != nil {
		return nil, fmt.Errorf("encoding YAML: %w", err)
	}
	return append(dst, text...), nil
}
