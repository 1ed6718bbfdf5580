package bench

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
	// tableType is what kubectl asks for.
	tableType    = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
	metadataType = protobufType + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// form is one way to ask for Pods.
type form struct {
	name   string
	path   string
	accept string
	gzip   bool
	// paged follows continue tokens to the end.
	paged bool
	// initial is a watch that is read to the end of its initial events.
	initial bool
	// share of all Pods that the answer must hold.
	share float64
}

func forms() []form {
	const all = "/api/v1/pods"
	return []form{
		{name: "JSON", path: all, accept: jsonType, share: 1},
		{name: "JSON gzip", path: all, accept: jsonType, gzip: true, share: 1},
		{name: "protobuf", path: all, accept: protobufType, share: 1},
		{name: "protobuf gzip", path: all, accept: protobufType, gzip: true, share: 1},
		{name: "Table", path: all, accept: tableType, share: 1},
		{name: "Table gzip, limit=500 (kubectl)", path: all + "?limit=500", accept: tableType, gzip: true, paged: true, share: 1},
		{name: "JSON, limit=500", path: all + "?limit=500", accept: jsonType, paged: true, share: 1},
		{name: "protobuf, limit=500", path: all + "?limit=500", accept: protobufType, paged: true, share: 1},
		{name: "JSON, selector of 1 %", path: all + "?labelSelector=" + percentLabel + "%3D7", accept: jsonType, share: 0.01},
		{name: "JSON, one namespace of 20", path: "/api/v1/namespaces/" + namespaceOf(3) + "/pods", accept: jsonType, share: 1.0 / namespaces},
		{name: "PartialObjectMetadata, protobuf", path: all, accept: metadataType, share: 1},
		{name: "WatchList, protobuf (informers)", path: all + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", accept: protobufType + ";stream=watch", initial: true, share: 1},
	}
}

func (f form) header() http.Header {
	h := http.Header{"Accept": {f.accept}, "Accept-Encoding": {"identity"}}
	if f.gzip {
		h.Set("Accept-Encoding", "gzip")
	}
	return h
}

var continuePattern = regexp.MustCompile(`"continue":\s?"([^"]+)"`)

// nextPage finds the continue token of a page, "" on the last one.
func (f form) nextPage(body []byte) (string, error) {
	if strings.HasPrefix(f.accept, jsonType) {
		match := continuePattern.FindSubmatch(body[:min(len(body), 1<<10)])
		if match == nil {
			return "", nil
		}
		return string(match[1]), nil
	}
	list, err := decodeProtobuf(body)
	if err != nil {
		return "", err
	}
	return list.Continue, nil
}

func decodeProtobuf(body []byte) (*corev1.PodList, error) {
	var unknown runtime.Unknown
	raw, ok := bytes.CutPrefix(body, []byte("k8s\x00"))
	if !ok {
		return nil, errors.New("protobuf answer without its mark")
	}
	if err := unknown.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("protobuf answer: %w", err)
	}
	list := &corev1.PodList{}
	if err := list.Unmarshal(unknown.Raw); err != nil {
		return nil, fmt.Errorf("protobuf list: %w", err)
	}
	return list, nil
}

// count decodes an answer in full and says how many distinct Pods it holds.
func (f form) count(body []byte) (int, error) {
	names := map[string]bool{}
	switch {
	case f.accept == metadataType:
		raw, ok := bytes.CutPrefix(body, []byte("k8s\x00"))
		var unknown runtime.Unknown
		list := &metav1.PartialObjectMetadataList{}
		if !ok || unknown.Unmarshal(raw) != nil || list.Unmarshal(unknown.Raw) != nil {
			return 0, errors.New("metadata answer cannot be decoded")
		}
		for i := range list.Items {
			names[list.Items[i].Namespace+"/"+list.Items[i].Name] = true
		}
	case strings.HasPrefix(f.accept, protobufType):
		list, err := decodeProtobuf(body)
		if err != nil {
			return 0, err
		}
		for i := range list.Items {
			names[list.Items[i].Namespace+"/"+list.Items[i].Name] = true
		}
	default:
		return countJSON(body, names)
	}
	return len(names), nil
}

func countJSON(body []byte, names map[string]bool) (int, error) {
	type object struct {
		Metadata struct{ Namespace, Name string }
	}
	var list struct {
		Items []object
		Rows  []struct{ Object object }
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return 0, fmt.Errorf("JSON answer: %w", err)
	}
	for _, row := range list.Rows {
		list.Items = append(list.Items, row.Object)
	}
	for _, o := range list.Items {
		if strings.HasPrefix(o.Metadata.Namespace, "bench-") {
			names[o.Metadata.Namespace+"/"+o.Metadata.Name] = true
		}
	}
	return len(names), nil
}

// plain unpacks an answer.
func plain(answer *http.Response, body []byte) ([]byte, error) {
	if answer.Header.Get("Content-Encoding") != "gzip" {
		return body, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("gzip answer: %w", err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("gzip answer: %w", err)
	}
	return out, nil
}
