package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// liveKind describes a kind that is asked of the members as JSON: whatever the
// client may have of a cached kind, Tables included, it has of this one too.
func (h *Handler) liveKind(info *request.RequestInfo, kindName string) *kind {
	gvk := schema.GroupVersionKind{Group: info.APIGroup, Version: info.APIVersion, Kind: kindName}
	return &kind{
		gvk: gvk, encoding: cache.JSON, namespaced: info.Namespace != "",
		scheme: h.Scheme, known: h.Scheme.Recognizes(gvk),
	}
}

// liveForm negotiates before the members are asked; the kind is not known yet,
// and does not matter to it.
func (h *Handler) liveForm(r *http.Request, info *request.RequestInfo, shape answerShape) (form, error) {
	return h.negotiate(r, h.liveKind(info, ""), shape)
}

// liveObject makes a cache object of a document as served.
func liveObject(doc document) (*cache.Object, error) {
	raw, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	meta := child(doc, "metadata")
	cluster := text(child(meta, "labels"), cache.ClusterLabel)
	rv, _ := strconv.ParseUint(text(meta, "resourceVersion"), 10, 64)
	return &cache.Object{
		Key:     cache.Key{Namespace: text(meta, "namespace"), Name: text(meta, "name")},
		Cluster: cache.ClusterName(cluster), UID: types.UID(text(meta, "uid")), RV: rv, Body: cache.Bytes(raw),
	}, nil
}

func (h *Handler) writeLive(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, f form, doc document) error {
	o, err := liveObject(doc)
	if err != nil {
		return err
	}
	e := encoderFor(h.liveKind(info, text(doc, "kind")), f, h.tables)
	b, err := e.object(nil, o)
	if err != nil {
		return err
	}
	return h.writeWhole(w, r, e.contentType(), http.StatusOK, b)
}

// writeWhole answers with bytes that are all there.
func (h *Handler) writeWhole(w http.ResponseWriter, r *http.Request, contentType string, code int, b []byte) error {
	body := newBody(w, r, contentType, code)
	defer body.release()
	body.announce(len(b))
	if _, err := body.Write(b); err != nil {
		return h.abort(r, body.started(), err)
	}
	if err := body.Close(); err != nil {
		return h.abort(r, body.started(), err)
	}
	return nil
}

func (h *Handler) writeLiveList(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, f form, list document) error {
	listKind := text(list, "kind")
	objects := make([]*cache.Object, 0, len(list))
	for _, item := range listOf(list) {
		// Items of a typed list do not say what they are.
		if text(item, "kind") == "" && f.as != asPartial {
			item["apiVersion"], item["kind"] = list["apiVersion"], strings.TrimSuffix(listKind, "List")
		}
		o, err := liveObject(item)
		if err != nil {
			return err
		}
		objects = append(objects, o)
	}
	p := pageOf(listMeta{ResourceVersion: text(child(list, "metadata"), "resourceVersion")}, objects)
	e := encoderFor(h.liveKind(info, strings.TrimSuffix(listKind, "List")), f, h.tables)
	return h.writeList(w, r, info.Resource, f, e, p)
}

func listOf(doc document) (out []document) {
	for _, item := range list(doc, "items") {
		if d, ok := item.(document); ok {
			out = append(out, d)
		}
	}
	return out
}
