package wire

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// magic opens every Kubernetes protobuf body; a runtime.Unknown follows.
var magic = []byte("k8s\x00")

// Fields of runtime.Unknown and runtime.TypeMeta.
const (
	unknownTypeMeta        = 1
	unknownRaw             = 2
	unknownContentEncoding = 3
	unknownContentType     = 4

	typeMetaAPIVersion = 1
	typeMetaKind       = 2
)

// Unwrap takes the envelope off a protobuf body. The result aliases body.
func Unwrap(body []byte) (raw []byte, apiVersion, kind string, err error) {
	msg, ok := bytes.CutPrefix(body, magic)
	if !ok {
		return nil, "", "", malformed("no protobuf envelope")
	}
	for len(msg) > 0 {
		f, rest, err := nextField(msg)
		if err != nil {
			return nil, "", "", err
		}
		msg = rest
		switch f.num {
		case unknownTypeMeta, unknownRaw, unknownContentEncoding, unknownContentType:
			if f.typ != protowire.BytesType {
				return nil, "", "", malformed("envelope field %d", f.num)
			}
		}
		switch f.num {
		case unknownTypeMeta:
			if apiVersion, err = textProto(f.val, []int32{typeMetaAPIVersion}); err != nil {
				return nil, "", "", err
			}
			if kind, err = textProto(f.val, []int32{typeMetaKind}); err != nil {
				return nil, "", "", err
			}
		case unknownRaw:
			raw = f.val
		case unknownContentEncoding:
			if len(f.val) > 0 {
				return nil, "", "", malformed("envelope with content encoding %q", f.val)
			}
		}
	}
	return raw, apiVersion, kind, nil
}

// Wrap appends a bare message in its envelope to dst.
func Wrap(dst, raw []byte, gvk schema.GroupVersionKind) []byte {
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	dst = append(dst, magic...)
	size := sizeText(apiVersion) + sizeText(kind)
	dst = protowire.AppendTag(dst, unknownTypeMeta, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = appendText(dst, typeMetaAPIVersion, apiVersion)
	dst = appendText(dst, typeMetaKind, kind)
	dst = protowire.AppendTag(dst, unknownRaw, protowire.BytesType)
	dst = protowire.AppendBytes(dst, raw)
	dst = appendText(dst, unknownContentEncoding, "")
	return appendText(dst, unknownContentType, "")
}

func sizeText(s string) int { return 1 + protowire.SizeBytes(len(s)) }

// DecodeStatus reads the metav1.Status of an error answer, in protobuf (bare
// or in its envelope) or JSON.
func DecodeStatus(body []byte) (*metav1.Status, error) {
	status := &metav1.Status{}
	if trimmed := bytes.TrimSpace(body); len(trimmed) > 0 && trimmed[0] == '{' {
		if err := json.Unmarshal(trimmed, status); err != nil {
			return nil, fmt.Errorf("%w: status: %w", ErrMalformed, err)
		}
		return status, nil
	}
	if bytes.HasPrefix(body, magic) {
		raw, _, kind, err := Unwrap(body)
		if err != nil {
			return nil, err
		}
		if kind != "Status" {
			return nil, malformed("a %q where a Status belongs", kind)
		}
		body = raw
	}
	if err := status.Unmarshal(body); err != nil {
		return nil, fmt.Errorf("%w: status: %w", ErrMalformed, err)
	}
	return status, nil
}
