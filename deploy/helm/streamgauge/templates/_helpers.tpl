{{/* The beginning of all names. */}}
{{- define "streamgauge.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels of everything. Takes a dict: root, component. */}}
{{- define "streamgauge.labels" -}}
{{ include "streamgauge.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* What selects the pods of a component. Takes a dict: root, component. */}}
{{- define "streamgauge.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* What selects pods of yours that have the sidecar, whose own labels stay. */}}
{{- define "streamgauge.sidecarSelector" -}}
streamgauge.io/tap: {{ .Release.Name }}
{{- end -}}

{{- define "streamgauge.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* A container may write to its mounts alone, and gains no rights. The uid is the image's. */}}
{{- define "streamgauge.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
runAsGroup: 10001
runAsNonRoot: true
runAsUser: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* What a pod has besides its containers and volumes. Takes a dict: root, component, values. */}}
{{- define "streamgauge.pod" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
# No part calls the API server; and variables of Services begin like those of settings (STREAMGAUGE_...).
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  runAsGroup: 10001
  runAsNonRoot: true
  runAsUser: 10001
  seccompProfile: {type: RuntimeDefault}
topologySpreadConstraints:
  {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "streamgauge.selector" $ | nindent 8 }}
  {{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- define "streamgauge.probes" -}}
{{- $scheme := .Values.admin.tlsSecret | empty | ternary "HTTP" "HTTPS" -}}
startupProbe:
  httpGet: {path: /health/live, port: admin, scheme: {{ $scheme }}}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /health/live, port: admin, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
  # Longer than a worker's own watchdog takes, whose last line says what was stuck.
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /health/ready, port: admin, scheme: {{ $scheme }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{/* Who may use the admin port, and its TLS, as variables. */}}
{{- define "streamgauge.adminEnv" -}}
{{- $exposed := or (not .Values.networkPolicy.enabled) (eq .Values.shape "sidecar") -}}
{{- if and $exposed (not .Values.admin.tokenSecret.name) (not .Values.admin.open) -}}
{{- fail "no NetworkPolicy protects the admin ports: set admin.tokenSecret.name, or admin.open to true" -}}
{{- end -}}
- {name: STREAMGAUGE_ADMIN, value: "{{ .Values.bindAddress }}:9464"}
{{- if .Values.admin.tokenSecret.name }}
- {name: STREAMGAUGE_ADMIN_TOKEN_FILE, value: /run/secrets/admin-token/token}
{{- else }}
- {name: STREAMGAUGE_ADMIN_OPEN, value: "true"}
{{- end }}
{{- if .Values.admin.tlsSecret }}
- {name: STREAMGAUGE_ADMIN_TLS_CERTIFICATE, value: /run/secrets/admin-tls/tls.crt}
- {name: STREAMGAUGE_ADMIN_TLS_KEY, value: /run/secrets/admin-tls/tls.key}
{{- end }}
{{- end -}}

{{- define "streamgauge.adminMounts" -}}
{{- if .Values.admin.tokenSecret.name }}
- {name: admin-token, mountPath: /run/secrets/admin-token, readOnly: true}
{{- end }}
{{- if .Values.admin.tlsSecret }}
- {name: admin-tls, mountPath: /run/secrets/admin-tls, readOnly: true}
{{- end }}
{{- end -}}

{{/* Takes a dict: root, mode (of the files). */}}
{{- define "streamgauge.adminVolumes" -}}
{{- with .root.Values.admin }}
{{- if .tokenSecret.name }}
- name: admin-token
  secret:
    secretName: {{ .tokenSecret.name }}
    items: [{key: {{ .tokenSecret.key }}, path: token}]
    defaultMode: {{ $.mode }}
{{- end }}
{{- if .tlsSecret }}
- name: admin-tls
  secret: {secretName: {{ .tlsSecret }}, defaultMode: {{ $.mode }}}
{{- end }}
{{- end }}
{{- end -}}

{{/* How Kafka is reached, as variables. */}}
{{- define "streamgauge.kafkaEnv" -}}
{{- with .Values.kafka -}}
- {name: STREAMGAUGE_KAFKA, value: {{ required "kafka.brokers is missing: HOST:PORT, several with commas" .brokers | quote }}}
- {name: STREAMGAUGE_TOPIC_PREFIX, value: {{ .topicPrefix | quote }}}
- {name: STREAMGAUGE_KAFKA_SECURITY, value: {{ .security | quote }}}
{{- if .username }}
- {name: STREAMGAUGE_KAFKA_MECHANISM, value: {{ .mechanism | quote }}}
- {name: STREAMGAUGE_KAFKA_USERNAME, value: {{ .username | quote }}}
- {name: STREAMGAUGE_KAFKA_PASSWORD_FILE, value: /run/secrets/kafka-password/password}
{{- end }}
{{- if .tlsSecret.name }}
{{- with .tlsSecret.ca }}
- {name: STREAMGAUGE_KAFKA_CA, value: "/run/secrets/kafka-tls/{{ . }}"}
{{- end }}
{{- with .tlsSecret.certificate }}
- {name: STREAMGAUGE_KAFKA_CERTIFICATE, value: "/run/secrets/kafka-tls/{{ . }}"}
{{- end }}
{{- with .tlsSecret.key }}
- {name: STREAMGAUGE_KAFKA_KEY, value: "/run/secrets/kafka-tls/{{ . }}"}
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "streamgauge.kafkaMounts" -}}
{{- if .Values.kafka.username }}
- {name: kafka-password, mountPath: /run/secrets/kafka-password, readOnly: true}
{{- end }}
{{- if .Values.kafka.tlsSecret.name }}
- {name: kafka-tls, mountPath: /run/secrets/kafka-tls, readOnly: true}
{{- end }}
{{- end -}}

{{/* Takes a dict: root, mode (of the files). */}}
{{- define "streamgauge.kafkaVolumes" -}}
{{- with .root.Values.kafka }}
{{- if .username }}
- name: kafka-password
  secret:
    secretName: {{ required "kafka.passwordSecret.name is missing" .passwordSecret.name }}
    items: [{key: {{ .passwordSecret.key }}, path: password}]
    defaultMode: {{ $.mode }}
{{- end }}
{{- if .tlsSecret.name }}
- name: kafka-tls
  secret:
    secretName: {{ .tlsSecret.name }}
    defaultMode: {{ $.mode }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Settings as variables. Takes a map of key -> value. A number is written without an exponent. */}}
{{- define "streamgauge.settingsEnv" -}}
{{- range $key, $value := . }}
- name: STREAMGAUGE_{{ upper $key }}
  value: {{ if kindIs "slice" $value }}{{ join "," $value | quote }}{{ else if kindIs "string" $value }}{{ $value | quote }}{{ else }}{{ toJson $value | quote }}{{ end }}
{{- end }}
{{- end -}}
