package gateway

import (
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// clusterColumn is the position of the CLUSTER column: after the first one.
const clusterColumn = 1

var clusterColumnDefinition = metav1.TableColumnDefinition{
	Name:        "Cluster",
	Type:        "string",
	Description: "Cluster that the object lives in.",
}

// tableMaker makes rows: those that kubectl knows of a built-in kind, name and
// age of any other, with the cluster in both.
type tableMaker struct {
	scheme  *runtime.Scheme
	printer printers.TableGenerator
}

var builtinPrinter = sync.OnceValue(func() printers.TableGenerator {
	return printers.NewTableGenerator().With(printersinternal.AddHandlers)
})

func newTableMaker(scheme *runtime.Scheme) *tableMaker {
	return &tableMaker{scheme: scheme, printer: builtinPrinter()}
}

// plainColumns are the columns of a kind that has no printer.
var plainColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
	{Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
}

// columns describes the cells of a kind's rows.
func (t *tableMaker) columns(k *kind) ([]metav1.TableColumnDefinition, error) {
	if !k.known {
		return withCluster(plainColumns, clusterColumnDefinition), nil
	}
	obj, err := k.scheme.New(k.gvk)
	if err != nil {
		return nil, fmt.Errorf("no Go type of %s: %w", k.gvk, err)
	}
	table, ok, err := t.print(obj, false)
	if err != nil {
		return nil, err
	}
	if !ok {
		return withCluster(plainColumns, clusterColumnDefinition), nil
	}
	return withCluster(table.ColumnDefinitions, clusterColumnDefinition), nil
}

// print makes the table of one object; ok is false for a kind without printer.
func (t *tableMaker) print(obj runtime.Object, noHeaders bool) (table *metav1.Table, ok bool, err error) {
	internal, err := t.scheme.UnsafeConvertToVersion(obj, runtime.InternalGroupVersioner)
	if err != nil {
		return nil, false, nil //nolint:nilerr // a kind without an internal version has no printer
	}
	table, err = t.printer.GenerateTable(internal, printers.GenerateOptions{Wide: true, NoHeaders: noHeaders})
	if err != nil {
		return nil, false, nil //nolint:nilerr // no printer is registered for the type
	}
	return table, true, nil
}

// withCluster puts a value at the place of the CLUSTER column.
func withCluster[T any](cells []T, cluster T) []T {
	at := min(clusterColumn, len(cells))
	out := make([]T, 0, len(cells)+1)
	out = append(out, cells[:at]...)
	out = append(out, cluster)
	return append(out, cells[at:]...)
}

// cells makes the row of one object, without the object itself.
func (t *tableMaker) cells(k *kind, o *cache.Object) (metav1.TableRow, error) {
	if k.known {
		obj, err := k.decode(o)
		if err != nil {
			return metav1.TableRow{}, err
		}
		table, ok, err := t.print(obj, true)
		if err != nil {
			return metav1.TableRow{}, err
		}
		if ok && len(table.Rows) == 1 {
			row := table.Rows[0]
			row.Cells = withCluster[any](row.Cells, string(o.Cluster))
			return row, nil
		}
	}
	m, err := k.metadata(o)
	if err != nil {
		return metav1.TableRow{}, err
	}
	return metav1.TableRow{Cells: withCluster([]any{m.Name, age(m.CreationTimestamp)}, any(string(o.Cluster)))}, nil
}

func age(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// tableValue makes rows, and tables of one row for single objects.
type tableValue struct {
	kind   *kind
	form   form
	tables *tableMaker
}

func (v tableValue) id() string {
	return fmt.Sprintf("table/%s/%s/%t/%s", v.form.metaVersion.Version, v.form.table.IncludeObject, v.form.table.NoHeaders, v.kind.gvk.Group)
}

// row makes the row of an object with as much of it as was asked for.
func (v tableValue) row(o *cache.Object) (metav1.TableRow, error) {
	row, err := v.tables.cells(v.kind, o)
	if err != nil {
		return row, err
	}
	row.Object = runtime.RawExtension{}
	if v.form.table.IncludeObject == metav1.IncludeObject {
		row.Object.Raw, err = v.kind.appendJSON(nil, o, false)
		return row, err
	}
	// Only bookmarks have no name; the one that ends the initial events keeps
	// its metadata, which carries the mark.
	none := v.form.table.IncludeObject == metav1.IncludeNone
	if none && o.Key.Name != "" {
		return row, nil
	}
	if none {
		m, err := v.kind.metadata(o)
		if err != nil || m.Annotations[metav1.InitialEventsAnnotationKey] == "" {
			return row, err
		}
	}
	row.Object.Raw, err = v.kind.appendPartial(nil, o, v.form.metaVersion)
	return row, err
}

func (v tableValue) value(dst []byte, o *cache.Object, item bool) ([]byte, error) {
	row, err := v.row(o)
	if err != nil {
		return nil, err
	}
	if item {
		return appendMarshal(dst, row)
	}
	table, err := v.header(listMeta{ResourceVersion: formatRV(o.RV)})
	if err != nil {
		return nil, err
	}
	table.Rows = []metav1.TableRow{row}
	return appendMarshal(dst, table)
}

func (v tableValue) header(m listMeta) (*metav1.Table, error) {
	apiVersion, kindName := v.form.metaVersion.WithKind("Table").ToAPIVersionAndKind()
	table := &metav1.Table{TypeMeta: metav1.TypeMeta{Kind: kindName, APIVersion: apiVersion}, ListMeta: m}
	if v.form.table.NoHeaders {
		table.ColumnDefinitions = []metav1.TableColumnDefinition{}
		return table, nil
	}
	columns, err := v.tables.columns(v.kind)
	table.ColumnDefinitions = columns
	return table, err
}

// tableHeader is a Table without its rows.
type tableHeader struct {
	metav1.TypeMeta   `json:",inline"`
	Metadata          metav1.ListMeta                `json:"metadata"`
	ColumnDefinitions []metav1.TableColumnDefinition `json:"columnDefinitions"`
}

func (v tableValue) listHead(m listMeta) ([]byte, string, error) {
	table, err := v.header(m)
	if err != nil {
		return nil, "", err
	}
	b, err := appendMarshal(nil, tableHeader{TypeMeta: table.TypeMeta, Metadata: m, ColumnDefinitions: table.ColumnDefinitions})
	return b, "rows", err
}
