package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

func protoFrame(t testing.TB, typ string, object []byte) []byte {
	t.Helper()
	event := metav1.WatchEvent{Type: typ, Object: runtime.RawExtension{Raw: object}}
	body, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func watchBody(t testing.TB, enc cache.Encoding) []byte {
	t.Helper()
	status := metav1.Status{Status: "Failure", Code: 410, Reason: "Expired"}
	if enc == cache.Protobuf {
		pod := Wrap(nil, encode(t, enc, samplePod()), schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
		raw, err := status.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		body := append(protoFrame(t, TypeAdded, pod), protoFrame(t, TypeDeleted, pod)...)
		return append(body, protoFrame(t, TypeError, Wrap(nil, raw, schema.GroupVersionKind{Version: "v1", Kind: "Status"}))...)
	}
	var b bytes.Buffer
	for _, e := range []any{
		map[string]any{"type": TypeAdded, "object": samplePod()},
		map[string]any{"type": TypeDeleted, "object": samplePod()},
		map[string]any{"type": TypeError, "object": status},
	} {
		if err := json.NewEncoder(&b).Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestFrames(t *testing.T) {
	eachEncoding(t, func(t *testing.T, enc cache.Encoding) {
		body := watchBody(t, enc)
		for name, r := range map[string]io.Reader{"whole": bytes.NewReader(body), "bytewise": iotest.OneByteReader(bytes.NewReader(body))} {
			frames := NewFrames(enc, r)
			for _, typ := range []string{TypeAdded, TypeDeleted} {
				f, err := frames.Next()
				if err != nil || f.Type != typ {
					t.Fatalf("%s: %q, %v", name, f.Type, err)
				}
				if m, err := ParseMeta(enc, f.Object); err != nil || m.Name != "web-0" {
					t.Errorf("%s: %+v, %v", name, m, err)
				}
			}
			f, err := frames.Next()
			if err != nil || f.Type != TypeError {
				t.Fatalf("%s: %q, %v", name, f.Type, err)
			}
			if s, err := DecodeStatus(f.Object); err != nil || s.Code != 410 {
				t.Errorf("%s: %+v, %v", name, s, err)
			}
			if _, err := frames.Next(); err != io.EOF { //nolint:errorlint // the contract is the bare value
				t.Errorf("%s: end is %v", name, err)
			}
		}
	})
}

func TestFramesBroken(t *testing.T) {
	body := watchBody(t, cache.Protobuf)
	if _, err := NewFrames(cache.Protobuf, bytes.NewReader(body[:20])).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut frame: %v", err)
	}
	if _, err := NewFrames(cache.Protobuf, bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff})).Next(); !errors.Is(err, ErrMalformed) {
		t.Errorf("frame of 4 GiB: %v", err)
	}
	if _, err := NewFrames(cache.JSON, bytes.NewReader([]byte("<html>\n"))).Next(); !errors.Is(err, ErrMalformed) {
		t.Errorf("HTML: %v", err)
	}
}
