package gateway

import (
	"errors"
	"net/http"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// serveGet answers a GET. An error means that nothing has been written.
func (h *Handler) serveGet(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) error {
	// Refuse what cannot be encoded before anything is looked up.
	if _, err := h.negotiate(r, h.kindOf(info, c.Resource()), oneObject); err != nil {
		return err
	}
	at, strict, err := parseGet(r)
	if err != nil {
		return err
	}
	everything := selection{labels: labels.Everything(), fields: fields.Everything()}
	if strict {
		if err := h.awaitComplete(r.Context(), c, &everything, true); err != nil {
			return err
		}
	}
	key := keyOf(info, c.Resource())
	o, err := c.Get(r.Context(), key, at)
	if errors.Is(err, cache.ErrNotFound) && notLoadedOf(c.Gaps()) != nil {
		// The object may be in a cluster that is not loaded: "not found"
		// would make a controller create it anew.
		if err := h.awaitComplete(r.Context(), c, &everything, false); err != nil {
			return err
		}
		o, err = c.Get(r.Context(), key, at)
	}
	if err != nil {
		return err
	}
	if err := h.authorizeCluster(r.Context(), info, o.Cluster); err != nil {
		return err
	}
	warn(w, warnings(gapsOf(c.Gaps(), o.Cluster)))
	return h.writeServed(w, r, info, c, http.StatusOK, o)
}

// parseGet reads the options of a GET.
func parseGet(r *http.Request) (at cache.Version, strict bool, err error) {
	values := r.URL.Query()
	var get metav1.GetOptions
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion, &get); err != nil {
		return at, false, badRequest("%v", err)
	}
	if strict, err = parseConsistency(values.Get("consistency")); err != nil {
		return at, false, err
	}
	at, err = versionOf(&metainternalversion.ListOptions{ResourceVersion: get.ResourceVersion})
	return at, strict, err
}

// gapsOf keeps the gaps of one cluster.
func gapsOf(gaps []cache.Gap, cluster cache.ClusterName) []cache.Gap {
	for i, g := range gaps {
		if g.Cluster == cluster {
			return gaps[i : i+1]
		}
	}
	return nil
}
