package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy/gateway/transcode"
)

// kind knows how the cached bytes of a resource are read, in the group and
// version in which the client asks for them.
type kind struct {
	gvk        schema.GroupVersionKind
	encoding   cache.Encoding
	namespaced bool
	scheme     *runtime.Scheme
	// known is set when the scheme has a Go type of gvk.
	known bool
	// rewrite turns the bytes of the cached version into those of gvk;
	// nil when they are the same. It is for protobuf only, and the length of
	// the result is the length of its input.
	rewrite func([]byte) ([]byte, error)
	// view cuts protobuf bytes to what the printer reads; nil for everything.
	view printView
	// plan writes JSON from protobuf; nil where the long way is the only one.
	plan *transcode.Plan
}

// kindTable remembers the kinds by the resource as clients spell it.
type kindTable struct{ byResource sync.Map }

// kindOf describes the kind of a collection as a request spells it.
func (h *Handler) kindOf(info *request.RequestInfo, res cache.Resource) *kind {
	gvr := requestedGVR(info)
	if k, ok := h.kinds.byResource.Load(gvr); ok {
		if k := k.(*kind); k.encoding == res.Encoding {
			return k
		}
	}
	k := &kind{
		gvk:        gvr.GroupVersion().WithKind(res.Kind),
		encoding:   res.Encoding,
		namespaced: res.Namespaced,
		scheme:     h.Scheme,
		known:      h.Scheme.Recognizes(gvr.GroupVersion().WithKind(res.Kind)),
	}
	if gvr != res.GroupVersionResource {
		k.rewrite = coreEventToEvents
	}
	k.plan = planOf(k)
	if k.encoding == cache.Protobuf && k.rewrite == nil {
		k.view = printViewOf(k.gvk)
	}
	h.kinds.byResource.Store(gvr, k)
	return k
}

// planOf compiles the kind's Go type, if it has one that plans can be made of.
func planOf(k *kind) *transcode.Plan {
	if !k.known || k.encoding != cache.Protobuf {
		return nil
	}
	obj, err := k.scheme.New(k.gvk)
	if err != nil {
		return nil
	}
	plan, err := transcode.PlanFor(reflect.TypeOf(obj).Elem())
	if err != nil {
		klog.Background().Info("JSON of this kind takes the long way", "kind", k.gvk, "reason", err)
		return nil
	}
	return plan
}

// metadataPlan writes ObjectMeta as JSON.
var metadataPlan = sync.OnceValues(func() (*transcode.Plan, error) {
	return transcode.PlanFor(reflect.TypeFor[metav1.PartialObjectMetadata]())
})

// protoObject is what every generated API type with a protobuf form has.
type protoObject interface {
	runtime.Object
	Unmarshal([]byte) error
}

// raw gives the bytes of an object in the version of the kind.
func (k *kind) raw(o *cache.Object) ([]byte, error) {
	if k.rewrite == nil {
		return o.Raw(), nil
	}
	b, err := k.rewrite(o.Raw())
	if err != nil {
		return nil, fmt.Errorf("converting %s to %s: %w", o.Key, k.gvk, err)
	}
	return b, nil
}

// decode makes a fresh typed object, without apiVersion and kind.
func (k *kind) decode(o *cache.Object) (runtime.Object, error) {
	raw, err := k.raw(o)
	if err != nil {
		return nil, err
	}
	return k.decodeRaw(o, raw)
}

// decodePrinted makes an object that has at least what its printer reads.
func (k *kind) decodePrinted(o *cache.Object) (runtime.Object, error) {
	if k.view == nil {
		return k.decode(o)
	}
	buffer := printBuffers.Get().(*[]byte)
	defer printBuffers.Put(buffer)
	raw, err := k.view.appendTo((*buffer)[:0], o.Raw())
	if err != nil {
		return nil, fmt.Errorf("decoding %s %s: %w", k.gvk.Kind, o.Key, err)
	}
	*buffer = raw
	return k.decodeRaw(o, raw)
}

// printBuffers hold cut messages; decoding copies what it keeps of them.
var printBuffers = sync.Pool{New: func() any { return new([]byte) }}

func (k *kind) decodeRaw(o *cache.Object, raw []byte) (runtime.Object, error) {
	obj, err := k.scheme.New(k.gvk)
	if err != nil {
		return nil, fmt.Errorf("no Go type of %s: %w", k.gvk, err)
	}
	if k.encoding == cache.JSON {
		err = json.Unmarshal(raw, obj)
	} else if p, ok := obj.(protoObject); ok {
		err = p.Unmarshal(raw)
	} else {
		err = fmt.Errorf("%T has no protobuf form", obj)
	}
	if err != nil {
		return nil, fmt.Errorf("decoding %s %s: %w", k.gvk.Kind, o.Key, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return obj, nil
}

// metadata decodes the ObjectMeta alone.
func (k *kind) metadata(o *cache.Object) (*metav1.ObjectMeta, error) {
	if k.encoding == cache.JSON {
		var partial struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		}
		if err := json.Unmarshal(o.Raw(), &partial); err != nil {
			return nil, fmt.Errorf("decoding the metadata of %s: %w", o.Key, err)
		}
		return &partial.Metadata, nil
	}
	b, err := protoMetadata(o.Raw())
	if err != nil {
		return nil, fmt.Errorf("finding the metadata of %s: %w", o.Key, err)
	}
	m := &metav1.ObjectMeta{}
	if err := m.Unmarshal(b); err != nil {
		return nil, fmt.Errorf("decoding the metadata of %s: %w", o.Key, err)
	}
	return m, nil
}

// metadataField is the number of ObjectMeta in every API type.
const metadataField = 1

// protoMetadata finds the bytes of ObjectMeta in those of an object. They
// alias raw. A message without the field has an empty ObjectMeta.
func protoMetadata(raw []byte) ([]byte, error) {
	for b := raw; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
		if num == metadataField && typ == protowire.BytesType {
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return nil, protowire.ParseError(n)
			}
			return v, nil
		}
		n = protowire.ConsumeFieldValue(num, typ, b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
	}
	return nil, nil
}

// eventFields maps the field numbers of a core/v1 Event to those of an
// events.k8s.io/v1 Event. The fields themselves have the same form in both.
var eventFields = [...]protowire.Number{
	1:  1,  // metadata
	2:  8,  // involvedObject -> regarding
	3:  7,  // reason
	4:  10, // message -> note
	5:  12, // source -> deprecatedSource
	6:  13, // firstTimestamp -> deprecatedFirstTimestamp
	7:  14, // lastTimestamp -> deprecatedLastTimestamp
	8:  15, // count -> deprecatedCount
	9:  11, // type
	10: 2,  // eventTime
	11: 3,  // series
	12: 6,  // action
	13: 9,  // related
	14: 4,  // reportingComponent -> reportingController
	15: 5,  // reportingInstance
}

// coreEventToEvents renumbers the fields of a core Event. Unknown fields have
// no meaning in the other version but keep the length, as unknown numbers.
func coreEventToEvents(raw []byte) ([]byte, error) {
	out := make([]byte, 0, len(raw))
	for b := raw; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		v := protowire.ConsumeFieldValue(num, typ, b[n:])
		if v < 0 {
			return nil, protowire.ParseError(v)
		}
		if int(num) < len(eventFields) {
			num = eventFields[num]
		}
		out = protowire.AppendTag(out, num, typ)
		out = append(out, b[n:n+v]...)
		b = b[n+v:]
	}
	return out, nil
}

// bookmark is an object of the kind that has a resourceVersion and nothing
// else, but for the annotation that ends the initial events.
func (k *kind) bookmark(rv uint64, initialEnd bool) (*cache.Object, error) {
	m := metav1.ObjectMeta{ResourceVersion: formatRV(rv)}
	if initialEnd {
		m.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	if k.encoding == cache.JSON {
		raw, err := json.Marshal(metav1.PartialObjectMetadata{TypeMeta: k.typeMeta(), ObjectMeta: m})
		if err != nil {
			return nil, fmt.Errorf("encoding a bookmark: %w", err)
		}
		return &cache.Object{RV: rv, Body: cache.Bytes(raw)}, nil
	}
	b, err := m.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding a bookmark: %w", err)
	}
	raw := protowire.AppendTag(nil, metadataField, protowire.BytesType)
	return &cache.Object{RV: rv, Body: cache.Bytes(protowire.AppendBytes(raw, b))}, nil
}

func (k *kind) typeMeta() metav1.TypeMeta {
	apiVersion, kindName := k.gvk.ToAPIVersionAndKind()
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kindName}
}

// appendJSON appends the object as JSON. An item of a typed list has no
// apiVersion and kind of its own; everything else has.
func (k *kind) appendJSON(dst []byte, o *cache.Object, item bool) ([]byte, error) {
	if k.encoding == cache.JSON {
		return append(dst, bytes.TrimSpace(o.Raw())...), nil
	}
	if k.plan != nil {
		raw, err := k.raw(o)
		if err != nil {
			return nil, err
		}
		var m metav1.TypeMeta
		if !item {
			m = k.typeMeta()
		}
		out, err := k.plan.Append(dst, raw, m.APIVersion, m.Kind)
		if !errors.Is(err, transcode.ErrOdd) {
			return out, err
		}
	}
	obj, err := k.decode(o)
	if err != nil {
		return nil, err
	}
	if !item {
		obj.GetObjectKind().SetGroupVersionKind(k.gvk)
	}
	return appendMarshal(dst, obj)
}

// appendPartial appends the object's metadata as a PartialObjectMetadata.
func (k *kind) appendPartial(dst []byte, o *cache.Object, gv schema.GroupVersion) ([]byte, error) {
	if k.encoding == cache.Protobuf {
		plan, err := metadataPlan()
		if err != nil {
			return nil, fmt.Errorf("compiling ObjectMeta: %w", err)
		}
		b, err := protoMetadata(o.Raw())
		if err != nil {
			return nil, fmt.Errorf("finding the metadata of %s: %w", o.Key, err)
		}
		msg := protowire.AppendTag(make([]byte, 0, len(b)+8), metadataField, protowire.BytesType)
		out, err := plan.Append(dst, protowire.AppendBytes(msg, b), gv.String(), "PartialObjectMetadata")
		if !errors.Is(err, transcode.ErrOdd) {
			return out, err
		}
	}
	m, err := k.metadata(o)
	if err != nil {
		return nil, err
	}
	return appendMarshal(dst, partialOf(m, gv))
}

// appendMarshal appends v as JSON without a copy in between.
func appendMarshal(dst []byte, v any) ([]byte, error) {
	buf := bytes.NewBuffer(dst)
	if err := json.NewEncoder(buf).Encode(v); err != nil {
		return nil, fmt.Errorf("encoding JSON: %w", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
