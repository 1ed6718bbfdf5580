package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

const (
	// maxBody is the limit of a request's body, kube-apiserver's.
	maxBody = proxy.BodyLimit

	jsonType     = "application/json"
	yamlType     = "application/yaml"
	protobufType = "application/vnd.kubernetes.protobuf"
)

// document is an object, or a patch of one, as JSON has it: maps, slices,
// strings, bools, int64 and float64.
type document = map[string]any

// readBody reads a body within the limit.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
		}
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the body: %v", err))
	}
	if len(body) > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	return body, nil
}

// mediaTypeOf is the type of a body without its parameters.
func mediaTypeOf(r *http.Request) string {
	value := r.Header.Get("Content-Type")
	if value == "" {
		return jsonType
	}
	t, _, err := mime.ParseMediaType(value)
	if err != nil {
		return value
	}
	return t
}

func unsupportedType(supported ...string) error {
	return negotiation.NewUnsupportedMediaTypeError(supported)
}

// decodeObject reads the object in a body. The second result are complaints
// that fieldValidation decides about: what JSON and YAML hold twice would be
// lost before the member could see it.
func (h *Handler) decodeObject(r *http.Request, body []byte, encoding cache.Encoding) (document, []error, error) {
	switch mediaTypeOf(r) {
	case jsonType:
		return parseJSON(body)
	case yamlType:
		return parseYAML(body)
	case protobufType:
		if encoding == cache.Protobuf {
			doc, err := h.decodeProtobuf(r, body)
			return doc, nil, err
		}
		return nil, nil, unsupportedType(jsonType, yamlType)
	}
	if encoding == cache.Protobuf {
		return nil, nil, unsupportedType(jsonType, yamlType, protobufType)
	}
	return nil, nil, unsupportedType(jsonType, yamlType)
}

func parseJSON(body []byte) (document, []error, error) {
	var doc document
	complaints, err := kjson.UnmarshalStrict(body, &doc, kjson.DisallowDuplicateFields)
	if err != nil {
		return nil, nil, badRequest("body is no JSON object: %v", err)
	}
	if doc == nil {
		return nil, nil, badRequest("body is no JSON object")
	}
	return doc, complaints, nil
}

func parseYAML(body []byte) (document, []error, error) {
	var complaints []error
	js, err := yaml.YAMLToJSONStrict(body)
	if err != nil {
		if js, complaints, err = tolerantYAML(body, err); err != nil {
			return nil, nil, badRequest("body is no YAML object: %v", err)
		}
	}
	doc, more, err := parseJSON(js)
	return doc, append(complaints, more...), err
}

func tolerantYAML(body []byte, complaint error) ([]byte, []error, error) {
	js, err := yaml.YAMLToJSON(body)
	if err != nil {
		return nil, nil, err
	}
	return js, []error{complaint}, nil
}

// decodeProtobuf reads the object through this program's type of its kind.
func (h *Handler) decodeProtobuf(r *http.Request, body []byte) (document, error) {
	info, err := negotiation.NegotiateInputSerializer(r, false, h.Codecs)
	if err != nil {
		return nil, err
	}
	obj, gvk, err := info.Serializer.Decode(body, nil, nil)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	return toDocument(obj, *gvk)
}

// toDocument gives a typed object the form that JSON has of it.
func toDocument(obj runtime.Object, gvk schema.GroupVersionKind) (document, error) {
	js, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", gvk.Kind, err)
	}
	doc, _, err := parseJSON(js)
	if err != nil {
		return nil, err
	}
	doc["apiVersion"], doc["kind"] = gvk.GroupVersion().String(), gvk.Kind
	return doc, nil
}

// complain reports duplicate fields as fieldValidation wants it.
func complain(w http.ResponseWriter, r *http.Request, complaints []error) error {
	if len(complaints) == 0 {
		return nil
	}
	switch r.URL.Query().Get("fieldValidation") {
	case metav1.FieldValidationIgnore:
		return nil
	case metav1.FieldValidationStrict:
		return badRequest("%v", runtime.NewStrictDecodingError(complaints))
	}
	var texts []string
	for i, c := range complaints {
		if i == maxWarnings {
			break
		}
		texts = append(texts, sanitize(c.Error(), maxWarning))
	}
	warn(w, texts)
	return nil
}

// served decodes an object of the cache.
func (h *Handler) served(res cache.Resource, raw []byte) (document, error) {
	if res.Encoding == cache.JSON {
		doc, _, err := parseJSON(raw)
		return doc, err
	}
	gvk := res.GroupVersion().WithKind(res.Kind)
	obj, err := h.newMessage(gvk)
	if err != nil {
		return nil, err
	}
	if err := obj.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", gvk.Kind, err)
	}
	return toDocument(obj, gvk)
}

// encodeRaw gives a document the form that the cache keeps objects in.
func (h *Handler) encodeRaw(res cache.Resource, doc document) ([]byte, error) {
	js, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", res.Kind, err)
	}
	if res.Encoding == cache.JSON {
		return js, nil
	}
	obj, err := h.newMessage(res.GroupVersion().WithKind(res.Kind))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(js, obj); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", res.Kind, err)
	}
	return obj.Marshal()
}

// message is a built-in type with a protobuf form.
type message interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

func (h *Handler) newMessage(gvk schema.GroupVersionKind) (message, error) {
	obj, err := h.Scheme.New(gvk)
	if err != nil {
		return nil, fmt.Errorf("kind %s: %w", gvk.Kind, err)
	}
	m, ok := obj.(message)
	if !ok {
		return nil, fmt.Errorf("kind %s has no protobuf form", gvk.Kind)
	}
	return m, nil
}

// isProtobuf tells the encoding of an answer by its declared type.
func isProtobuf(header http.Header) bool {
	return strings.HasPrefix(header.Get("Content-Type"), protobufType)
}
