; kernel "scan"
define void @tally_entry(ptr noalias readonly align 8 dereferenceable(48) %ctx) #0 {
entry:
  %args.at = getelementptr inbounds i8, ptr %ctx, i64 8
  %args = load ptr, ptr %args.at, align 8, !invariant.load !0
  %local.at = getelementptr inbounds i8, ptr %ctx, i64 16
  %local = load ptr, ptr %local.at, align 8, !invariant.load !0
  %scratch.at = getelementptr inbounds i8, ptr %ctx, i64 24
  %scratch = load ptr, ptr %scratch.at, align 8, !invariant.load !0
  %nx.launch = load ptr, ptr %ctx, align 8, !invariant.load !0
  %nx.group32.at = getelementptr inbounds i8, ptr %ctx, i64 32
  %nx.group32 = load i32, ptr %nx.group32.at, align 4, !invariant.load !0
  %nx.full32.at = getelementptr inbounds i8, ptr %nx.launch, i64 60
  %nx.full32 = load i32, ptr %nx.full32.at, align 4, !invariant.load !0
  %nx.global.at = getelementptr inbounds i8, ptr %nx.launch, i64 24
  %nx.global = load i64, ptr %nx.global.at, align 8, !invariant.load !0
  %nx.group = zext i32 %nx.group32 to i64
  %nx.full = zext i32 %nx.full32 to i64
  %nx.before = mul i64 %nx.group, %nx.full
  %nx.left = sub i64 %nx.global, %nx.before
  %nx = call i64 @llvm.umin.i64(i64 %nx.left, i64 %nx.full)
  %ny.launch = load ptr, ptr %ctx, align 8, !invariant.load !0
  %ny.group32.at = getelementptr inbounds i8, ptr %ctx, i64 36
  %ny.group32 = load i32, ptr %ny.group32.at, align 4, !invariant.load !0
  %ny.full32.at = getelementptr inbounds i8, ptr %ny.launch, i64 64
  %ny.full32 = load i32, ptr %ny.full32.at, align 4, !invariant.load !0
  %ny.global.at = getelementptr inbounds i8, ptr %ny.launch, i64 32
  %ny.global = load i64, ptr %ny.global.at, align 8, !invariant.load !0
  %ny.group = zext i32 %ny.group32 to i64
  %ny.full = zext i32 %ny.full32 to i64
  %ny.before = mul i64 %ny.group, %ny.full
  %ny.left = sub i64 %ny.global, %ny.before
  %ny = call i64 @llvm.umin.i64(i64 %ny.left, i64 %ny.full)
  %nz.launch = load ptr, ptr %ctx, align 8, !invariant.load !0
  %nz.group32.at = getelementptr inbounds i8, ptr %ctx, i64 40
  %nz.group32 = load i32, ptr %nz.group32.at, align 4, !invariant.load !0
  %nz.full32.at = getelementptr inbounds i8, ptr %nz.launch, i64 68
  %nz.full32 = load i32, ptr %nz.full32.at, align 4, !invariant.load !0
  %nz.global.at = getelementptr inbounds i8, ptr %nz.launch, i64 40
  %nz.global = load i64, ptr %nz.global.at, align 8, !invariant.load !0
  %nz.group = zext i32 %nz.group32 to i64
  %nz.full = zext i32 %nz.full32 to i64
  %nz.before = mul i64 %nz.group, %nz.full
  %nz.left = sub i64 %nz.global, %nz.before
  %nz = call i64 @llvm.umin.i64(i64 %nz.left, i64 %nz.full)
  %arg0.at = getelementptr inbounds i8, ptr %args, i64 0
  %arg0 = load ptr, ptr %arg0.at, align 8, !invariant.load !0
  %arg1.at = getelementptr inbounds i8, ptr %args, i64 8
  %arg1.offset = load i64, ptr %arg1.at, align 8, !invariant.load !0
  %arg1 = getelementptr inbounds i8, ptr %local, i64 %arg1.offset
  %arguments = alloca { ptr, ptr }
  %arguments.0 = getelementptr { ptr, ptr }, ptr %arguments, i32 0, i32 0
  store ptr %arg0, ptr %arguments.0
  %arguments.1 = getelementptr { ptr, ptr }, ptr %arguments, i32 0, i32 1
  store ptr %arg1, ptr %arguments.1
  %frames = getelementptr i8, ptr %scratch, i64 0
  %group = alloca { ptr, ptr, ptr, i64, i64, i64 }
  %group.0 = getelementptr { ptr, ptr, ptr, i64, i64, i64 }, ptr %group, i32 0, i32 0
  store ptr %ctx, ptr %group.0
  %group.1 = getelementptr { ptr, ptr, ptr, i64, i64, i64 }, ptr %group, i32 0, i32 1
  store ptr %arguments, ptr %group.1
  %group.2 = getelementptr { ptr, ptr, ptr, i64, i64, i64 }, ptr %group, i32 0, i32 2
  store ptr %frames, ptr %group.2
  %group.3 = getelementptr { ptr, ptr, ptr, i64, i64, i64 }, ptr %group, i32 0, i32 3
  store i64 %nx, ptr %group.3
  %group.4 = getelementptr { ptr, ptr, ptr, i64, i64, i64 }, ptr %group, i32 0, i32 4
  store i64 %ny, ptr %group.4
  %group.5 = getelementptr { ptr, ptr, ptr, i64, i64, i64 }, ptr %group, i32 0, i32 5
  store i64 %nz, ptr %group.5
  call void @__tally_begin_items(ptr @tally.layout.f0, ptr %group, ptr @tally.begin)
  call void @__tally_run_items(ptr @tally.layout.f0, ptr %group, ptr @tally.resume.f0)
  br label %done
done:
  ret void
}
attributes #0 = { nounwind "reciprocal-estimates"="!vec-divf" }

; scan, to be resumed
define internal i32 @f0(ptr noalias readonly align 8 dereferenceable(48) %ctx, i64 %lx, i64 %ly, i64 %lz, ptr %priv, ptr noalias %frame, i32 %resume, ptr %v0, ptr %v1) #0 {
entry:
  %v13.slot = alloca i32
  %v14.slot = alloca i32
  %v21.slot = alloca i32
  %t1 = getelementptr inbounds i8, ptr %ctx, i64 32
  %t2 = load i32, ptr %t1, align 4, !invariant.load !0
  %t3 = zext i32 %t2 to i64
  %t4 = load ptr, ptr %ctx, align 8, !invariant.load !0
  %t5 = getelementptr inbounds i8, ptr %t4, i64 60
  %t6 = load i32, ptr %t5, align 4, !invariant.load !0
  %t7 = zext i32 %t6 to i64
  %t8 = mul nuw nsw i64 %t3, %t7
  %t9 = add nuw nsw i64 %t8, %lx
  %t10 = load ptr, ptr %ctx, align 8, !invariant.load !0
  %t11 = getelementptr inbounds i8, ptr %t10, i64 0
  %t12 = load i64, ptr %t11, align 8, !invariant.load !0
  %t13 = add i64 %t12, %t9
  %t14 = getelementptr inbounds [4 x i8], ptr %v1, i64 %lx
  switch i32 %resume, label %start [ i32 1, label %resume1 i32 2, label %resume2 ]
start:
  br label %bb0
resume1:
  %t15 = getelementptr i8, ptr %frame, i64 4
  %t16 = load i32, ptr %t15, align 4
  store i32 %t16, ptr %v13.slot
  %t17 = getelementptr i8, ptr %frame, i64 8
  %t18 = load i32, ptr %t17, align 4
  store i32 %t18, ptr %v14.slot
  br label %bb5
resume2:
  %t19 = getelementptr i8, ptr %frame, i64 4
  %t20 = load i32, ptr %t19, align 4
  store i32 %t20, ptr %v13.slot
  %t21 = getelementptr i8, ptr %frame, i64 12
  %t22 = load i32, ptr %t21, align 4
  store i32 %t22, ptr %v21.slot
  br label %bb6
bb0:
  %v10 = getelementptr inbounds [4 x i8], ptr %v0, i64 %t13
  %v11 = load i32, ptr %v10, align 4
  br label %bb1
bb1:
  %v13 = phi i32 [ 1, %bb0 ], [ %v22, %bb6 ]
  %v14 = phi i32 [ %v11, %bb0 ], [ %v14.bb6, %bb6 ]
  store i32 %v13, ptr %v13.slot
  store i32 %v14, ptr %v14.slot
  %t23 = load i32, ptr %v14.slot
  store i32 %t23, ptr %t14, align 4
  fence syncscope("singlethread") seq_cst
  %t24 = getelementptr i8, ptr %frame, i64 4
  %t25 = load i32, ptr %v13.slot
  store i32 %t25, ptr %t24, align 4
  %t26 = getelementptr i8, ptr %frame, i64 8
  %t27 = load i32, ptr %v14.slot
  store i32 %t27, ptr %t26, align 4
  ret i32 1
bb2:
  %v17 = sub i64 %lx, %v15
  %v18 = getelementptr inbounds [4 x i8], ptr %v1, i64 %v17
  %v19 = load i32, ptr %v18, align 4
  %t28 = load i32, ptr %v14.slot
  %v20 = add i32 %v19, %t28
  br label %bb3
bb3:
  %v21 = phi i32 [ %v20, %bb2 ], [ %v21.bb5, %bb5 ]
  store i32 %v21, ptr %v21.slot
  fence syncscope("singlethread") seq_cst
  %t29 = getelementptr i8, ptr %frame, i64 12
  %t30 = load i32, ptr %v21.slot
  store i32 %t30, ptr %t29, align 4
  ret i32 2
bb4:
  %v28 = getelementptr inbounds [4 x i8], ptr %v0, i64 %t13
  %t31 = load i32, ptr %v21.slot
  store i32 %t31, ptr %v28, align 4
  ret i32 -1
bb5:
  %t32 = load i32, ptr %v13.slot
  %v15 = zext i32 %t32 to i64
  %v16 = icmp ult i64 %lx, %v15
  %t33 = load i32, ptr %v14.slot
  %v21.bb5 = select i1 true, i32 %t33, i32 %t33
  br i1 %v16, label %bb3, label %bb2
bb6:
  %t34 = load i32, ptr %v13.slot
  %v22 = shl i32 %t34, 1
  %t35 = load i32, ptr %v13.slot
  %v23 = icmp ult i32 %t35, 4
  %t36 = load i32, ptr %v21.slot
  %v14.bb6 = select i1 true, i32 %t36, i32 %t36
  br i1 %v23, label %bb1, label %bb4
}

define internal void @tally.begin(ptr %priv) alwaysinline #0 {
entry:
  ret void
}

@tally.layout.f0 = internal constant { i64, i64, i64, i64, i64, i64 } { i64 1, i64 64, i64 4, i64 0, i64 0, i64 0 }

define internal i32 @tally.resume.f0(ptr %ctx, ptr %arguments, i64 %x, i64 %y, i64 %z, ptr %priv, ptr %frame, i32 %state) alwaysinline #0 {
entry:
  %arg0.at = getelementptr { ptr, ptr }, ptr %arguments, i32 0, i32 0
  %arg0 = load ptr, ptr %arg0.at
  %arg1.at = getelementptr { ptr, ptr }, ptr %arguments, i32 0, i32 1
  %arg1 = load ptr, ptr %arg1.at
  %stop = call i32 @f0(ptr %ctx, i64 %x, i64 %y, i64 %z, ptr %priv, ptr %frame, i32 %state, ptr %arg0, ptr %arg1)
  ret i32 %stop
}

declare i64 @llvm.umin.i64(i64, i64)
declare void @__tally_begin_items(ptr, ptr, ptr)
declare void @__tally_run_items(ptr, ptr, ptr)

!0 = !{}
!1 = !{i32 1}
!2 = distinct !{!2, !3}
!3 = !{!"llvm.loop.unroll.runtime.disable"}
