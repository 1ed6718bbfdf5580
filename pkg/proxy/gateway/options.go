package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metainternalversionvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// query is what a LIST or WATCH asks for, validated.
type query struct {
	metainternalversion.ListOptions
	selection selection
	version   cache.Version
	// strict asks for live answers of every cluster.
	strict bool
}

// selection says which objects of a collection an answer is about.
type selection struct {
	namespace string // "" for all
	name      string // "" for all
	labels    labels.Selector
	fields    fields.Selector
}

// everything says that nothing but the namespace selects.
func (s *selection) everything() bool {
	return s.name == "" && s.labels.Empty() && s.fields.Empty()
}

// single is the key of the only object that can match.
func (s *selection) single(namespaced bool) (cache.Key, bool) {
	return cache.Key{Namespace: s.namespace, Name: s.name}, s.name != "" && (s.namespace != "" || !namespaced)
}

func (s *selection) matches(o *cache.Object) bool {
	if s.namespace != "" && s.namespace != o.Key.Namespace || s.name != "" && s.name != o.Key.Name {
		return false
	}
	return (s.labels.Empty() || s.labels.Matches(objectLabels(o))) && (s.fields.Empty() || s.fields.Matches((*objectFields)(o)))
}

func objectLabels(o *cache.Object) labels.Labels {
	if o.Labels == nil {
		return labels.Set(nil)
	}
	return o.Labels
}

// objectFields are the selectable fields of an object, its key included.
type objectFields cache.Object

func (f *objectFields) Has(field string) bool {
	if field == fieldName || field == fieldNamespace {
		return true
	}
	return f.Fields != nil && f.Fields.Has(field)
}

func (f *objectFields) Get(field string) string {
	switch {
	case field == fieldName:
		return f.Key.Name
	case field == fieldNamespace:
		return f.Key.Namespace
	case f.Fields == nil:
		return ""
	}
	return f.Fields.Get(field)
}

// mayBeIn says whether an object of a cluster can match the label selector.
func (s *selection) mayBeIn(cluster cache.ClusterName) bool {
	if cluster == cache.AllClusters {
		return true
	}
	requirements, _ := s.labels.Requirements()
	for _, r := range requirements {
		if r.Key() == cache.ClusterLabel && !r.Matches(labels.Set{cache.ClusterLabel: string(cluster)}) {
			return false
		}
	}
	return true
}

// gaps keeps the gaps that concern the selection.
func (s *selection) gaps(all []cache.Gap) []cache.Gap {
	var out []cache.Gap
	for _, g := range all {
		if s.mayBeIn(g.Cluster) {
			out = append(out, g)
		}
	}
	return out
}

// parseQuery reads and validates the options of a LIST or WATCH.
func (h *Handler) parseQuery(r *http.Request, info *request.RequestInfo, k *kind, res cache.Resource) (query, error) {
	q := query{}
	values := r.URL.Query()
	err := metainternalversionscheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion, &q.ListOptions)
	if err != nil {
		return q, badRequest("%v", err)
	}
	q.Watch = info.Verb == "watch"
	metainternalversion.SetListOptionsDefaults(&q.ListOptions, true)
	if errs := metainternalversionvalidation.ValidateListOptions(&q.ListOptions, true); len(errs) > 0 {
		return q, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if q.strict, err = parseConsistency(values.Get("consistency")); err != nil {
		return q, err
	}
	if q.selection, err = h.parseSelection(info, k, res, q.ListOptions); err != nil {
		return q, err
	}
	q.version, err = versionOf(&q.ListOptions)
	return q, err
}

func parseConsistency(value string) (strict bool, err error) {
	switch value {
	case "", "cached":
		return false, nil
	case "strict":
		return true, nil
	}
	return false, badRequest("consistency %q is not known: it is strict or cached", value)
}

// parseRV reads a resourceVersion; the empty string is 0.
func parseRV(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	rv, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		// A number beyond 64 bits is one that was never issued.
		if errors.Is(err, strconv.ErrRange) {
			return 0, tooNew()
		}
		return 0, badRequest("invalid resource version: %v", field.Invalid(field.NewPath("resourceVersion"), s, err.Error()))
	}
	return rv, nil
}

func formatRV(rv uint64) string { return strconv.FormatUint(rv, 10) }

// versionOf says which moment the options ask for. A limit with a
// resourceVersion but no match means exactly that version, as ever.
func versionOf(o *metainternalversion.ListOptions) (cache.Version, error) {
	rv, err := parseRV(o.ResourceVersion)
	if err != nil {
		return cache.Version{}, err
	}
	switch {
	case o.ResourceVersion == "":
		return cache.Version{Match: cache.Latest}, nil
	case rv == 0:
		return cache.Version{Match: cache.Any}, nil
	case o.ResourceVersionMatch == metav1.ResourceVersionMatchExact,
		o.ResourceVersionMatch == "" && o.Limit > 0 && !o.Watch:
		return cache.Version{Match: cache.Exact, RV: rv}, nil
	}
	return cache.Version{Match: cache.NotOlderThan, RV: rv}, nil
}

// parseSelection joins the path, the name that a path may end in, and the
// selectors. Field labels are translated as the kind's version spells them.
func (h *Handler) parseSelection(info *request.RequestInfo, k *kind, res cache.Resource, o metainternalversion.ListOptions) (selection, error) {
	s := selection{labels: labels.Everything(), fields: fields.Everything()}
	if res.Namespaced {
		s.namespace = info.Namespace
	}
	if o.LabelSelector != nil {
		s.labels = o.LabelSelector
	}
	if o.FieldSelector != nil {
		var err error
		s.fields, err = o.FieldSelector.Transform(func(field, value string) (string, string, error) {
			return h.fieldLabel(k, requestedGVR(info), field, value)
		})
		if err != nil {
			return s, apierrors.NewBadRequest(err.Error())
		}
	}
	return s, s.narrow(info.Name, res.Namespaced)
}

var errNameMismatch = apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")

// narrow takes name and namespace out of the field selector, so that a single
// object or namespace is looked up and not searched for. What remains in the
// selector still holds.
func (s *selection) narrow(pathName string, namespaced bool) error {
	name, byField := s.fields.RequiresExactMatch(fieldName)
	switch {
	case pathName != "" && !s.fields.Empty() && (!byField || name != pathName):
		return errNameMismatch
	case pathName != "":
		s.name = pathName
	case byField:
		s.name = name
	}
	if ns, ok := s.fields.RequiresExactMatch(fieldNamespace); ok && namespaced && s.namespace == "" {
		s.namespace = ns
	}
	return nil
}

// fieldLabel checks a field label and spells it as Object.Fields does.
func (h *Handler) fieldLabel(k *kind, gvr schema.GroupVersionResource, field, value string) (string, string, error) {
	if field == fieldName || field == fieldNamespace {
		return field, value, nil
	}
	if k.known {
		return h.Scheme.ConvertFieldLabel(k.gvk, field, value)
	}
	if h.SelectableFields != nil {
		if slices.Contains(h.SelectableFields(gvr), field) {
			return field, value, nil
		}
	}
	return "", "", fmt.Errorf("field label not supported: %s", field)
}
