package feed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// Revisions lists the objects of a resource as the source has them now, by
// namespace, name and RV, and returns the RV of the list.
func Revisions(ctx context.Context, config *rest.Config, res cache.Resource, fn func(key cache.Key, rv uint64)) (uint64, error) {
	conn, err := connect(config, Options{Resource: res, Metadata: true})
	if err != nil {
		return 0, err
	}
	conn.page = 5000
	var bad error
	rv, err := conn.list(ctx, func(raw []byte) {
		meta, err := wire.ParseMeta(res.Encoding, raw)
		if err != nil {
			bad = err
			return
		}
		rv, _ := strconv.ParseUint(meta.ResourceVersion, 10, 64)
		fn(cache.Key{Namespace: strings.Clone(meta.Namespace), Name: strings.Clone(meta.Name)}, rv)
	})
	if errors.Is(err, errMissing) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if bad != nil {
		return 0, bad
	}
	return strconv.ParseUint(rv, 10, 64)
}

// ClusterUID reads what identifies a cluster: the UID of its kube-system
// namespace.
func ClusterUID(ctx context.Context, config *rest.Config) (types.UID, error) {
	ctx, cancel := context.WithTimeout(ctx, headerWait)
	defer cancel()
	conn, err := connect(config, Options{Resource: cache.Resource{Encoding: cache.JSON}})
	if err != nil {
		return "", err
	}
	resp, err := conn.get(ctx, "/api/v1/namespaces/kube-system", url.Values{}, "application/json")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("identity: %w", readError(resp))
	}
	var ns metav1.PartialObjectMetadata
	if err := decode(resp, &ns); err != nil {
		return "", fmt.Errorf("identity: %w", err)
	}
	if ns.UID == "" || ns.Name != metav1.NamespaceSystem {
		return "", errors.New("identity: the answer is no kube-system namespace")
	}
	return ns.UID, nil
}
